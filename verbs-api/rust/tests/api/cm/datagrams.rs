//! Datagram services: resolved, answered, rejected and used.

use urxe::cm::{self, DatagramListener, Listener, Options, ResolveError, SidrStatus};
use urxe::*;

use crate::cm::{address, client, device};
use crate::common::{LONG, datagram_qp, success};

#[test]
fn a_service_is_found_and_takes_datagrams() {
    let (here, there) = (device(80, 1), device(80, 2));
    let listener =
        DatagramListener::bind_with(Listener::builder().device(&here), (address(80, 1), 0))
            .unwrap();
    let to = listener.local_addr();
    let cq = here.create_cq(16).unwrap();
    let pd = here.alloc_pd().unwrap();
    let qp = datagram_qp(&pd, &cq, cm::DATAGRAM_QKEY);
    let inbox = pd.allocate(GRH_LEN + 64, Access::LOCAL_WRITE).unwrap();
    qp.post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();

    let sender_pd = there.alloc_pd().unwrap();
    let sender_cq = there.create_cq(16).unwrap();
    let options = Options::new().pd(&sender_pd).private_data(b"who serves?");
    let asking = std::thread::spawn(move || cm::resolve(to, &options).unwrap().wait().unwrap());
    let request = listener.wait(LONG).unwrap();
    assert!(request.peer_private_data().starts_with(b"who serves?\0"));
    assert_eq!(request.local_addr(), to);
    assert_eq!(request.peer_addr().ip(), address(80, 2));
    request.accept(&qp, b"this one").unwrap();
    let service = asking.join().unwrap();
    assert!(service.peer_private_data.starts_with(b"this one\0"));
    assert_eq!((service.qpn, service.qkey), (qp.qpn(), cm::DATAGRAM_QKEY));

    let sender = datagram_qp(&sender_pd, &sender_cq, cm::DATAGRAM_QKEY);
    let datagram = SendRequest::send(Data::inline(b"datagram"));
    sender.post_send(&datagram.to(&service.ah, service.qpn, service.qkey).signaled()).unwrap();
    let _ = success(&sender_cq);
    let received = success(&cq);
    assert_eq!(received.src_qp, sender.qpn());
    assert_eq!(inbox.read_vec(GRH_LEN, 8).unwrap(), b"datagram");
}

#[test]
fn a_service_may_be_refused_absent_or_another_devices() {
    let (here, other) = (device(81, 1), device(81, 3));
    let listener =
        DatagramListener::bind_with(Listener::builder().device(&here), (address(81, 1), 0))
            .unwrap();
    let options = client(81);
    let to = listener.local_addr();
    let refused = |resolving: cm::Resolving| match pollster::block_on(resolving).unwrap_err() {
        ResolveError::Refused { status, peer_private_data, .. } => (status, peer_private_data),
        other => panic!("{other:?}"),
    };
    let asking = cm::resolve(to, &options).unwrap();
    pollster::block_on(listener.next()).unwrap().reject(b"closed").unwrap();
    let (status, private_data) = refused(asking);
    assert_eq!(status, SidrStatus::REJECT);
    assert!(private_data.starts_with(b"closed\0"));

    let asking = cm::resolve(to, &options).unwrap();
    drop(listener.wait(LONG).unwrap());
    assert_eq!(refused(asking).0, SidrStatus::REJECT);

    let (pd, cq) = (other.alloc_pd().unwrap(), other.create_cq(1).unwrap());
    let foreign = pd.queue_pair(&cq).qp_type(QpType::Ud).create().unwrap();
    let asking = cm::resolve(to, &options).unwrap();
    let error = listener.wait(LONG).unwrap().accept(&foreign, b"").unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    assert_eq!(refused(asking).0, SidrStatus::REJECT);

    let absent = cm::resolve((address(81, 1), 9), &options).unwrap().wait().unwrap_err();
    assert_eq!(absent.errno(), libc::ECONNREFUSED);
}
