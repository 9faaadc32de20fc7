//! Datagram services: resolved, answered and refused.

use std::time::Duration;

use urxe::cm::{self, DatagramListener, Listener, ResolveError, SidrStatus};
use urxe::{Access, Data, GRH_LEN, RecvRequest, SendRequest};

use super::Hosts;
use crate::common::{datagram_qp, success};

fn listener(hosts: &Hosts) -> DatagramListener {
    DatagramListener::bind_with(Listener::builder().device(&hosts.server), hosts.to()).unwrap()
}

#[test]
fn a_service_is_found_over_a_bad_link_and_takes_datagrams() {
    for seed in 1..=5 {
        eprintln!("seed {seed}");
        let hosts = Hosts::new(seed);
        hosts.lose(30);
        let listener = listener(&hosts);
        let (pd, cq) = (hosts.server.alloc_pd().unwrap(), hosts.server.create_cq(16).unwrap());
        let qp = datagram_qp(&pd, &cq, cm::DATAGRAM_QKEY);
        let inbox = pd.allocate(GRH_LEN + 64, Access::LOCAL_WRITE).unwrap();
        qp.post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
        let own_pd = hosts.client.alloc_pd().unwrap();
        let options = hosts.options().pd(&own_pd).private_data(b"who serves?");
        let asking = cm::resolve(hosts.to(), &options).unwrap();
        let request = pollster::block_on(listener.next()).unwrap();
        assert!(request.peer_private_data().starts_with(b"who serves?\0"));
        request.accept(&qp, b"this one").unwrap();
        let service = asking.wait().unwrap();
        assert_eq!((service.qpn, service.qkey), (qp.qpn(), cm::DATAGRAM_QKEY));
        assert!(service.peer_private_data.starts_with(b"this one\0"));
        hosts.fabric.heal();
        let own_cq = hosts.client.create_cq(16).unwrap();
        let sender = datagram_qp(&own_pd, &own_cq, cm::DATAGRAM_QKEY);
        let datagram = SendRequest::send(Data::inline(b"datagram"));
        sender.post_send(&datagram.to(&service.ah, service.qpn, service.qkey)).unwrap();
        assert_eq!(success(&cq).src_qp, sender.qpn());
        assert_eq!(inbox.read_vec(GRH_LEN, 8).unwrap(), b"datagram");
    }
}

#[test]
fn a_service_is_refused_absent_or_silent() {
    let hosts = Hosts::new(7);
    let refused = |asking: cm::Resolving| match pollster::block_on(asking).unwrap_err() {
        ResolveError::Refused { status, peer_private_data, .. } => (status, peer_private_data),
        other => panic!("{other:?}"),
    };
    let ask = || cm::resolve(hosts.to(), &hosts.options()).unwrap();
    let listener = listener(&hosts);
    let asking = ask();
    listener.wait(None).unwrap().reject(b"closed").unwrap();
    let (status, private_data) = refused(asking);
    assert_eq!(status, SidrStatus::REJECT);
    assert!(private_data.starts_with(b"closed\0"));
    drop(listener);
    assert_eq!(refused(ask()).0, SidrStatus::UNSUPPORTED);
    hosts.lose(100);
    let before = hosts.now();
    assert_eq!(ask().wait().unwrap_err().errno(), libc::ETIMEDOUT);
    // Sixteen requests, one each 4.096 s, as by the kernel.
    assert_eq!(hosts.now() - before, 16 * Duration::from_millis(4096));
}
