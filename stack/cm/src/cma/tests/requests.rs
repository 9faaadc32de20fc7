//! Requests that a listener refuses, or that share its backlog.

use urxe_wire::Qpn;
use urxe_wire::mad::PortSpace;

use super::two_hosts::{Host, TwoHosts};
use crate::cm::CmPath;
use crate::cma::{CmaEventType, CmaId, ConnParam, EventParam};
use urxe_types::attr::QpType;

fn id_of(host: &mut Host, qp_type: QpType) -> CmaId {
    host.cma.create_id(host.channel, PortSpace::TCP, qp_type, 0).unwrap()
}

/// Returns whether a listener of one type receives the request of a client of another type.
fn is_served(client: QpType, server: QpType) -> bool {
    let mut hosts = TwoHosts::new();
    let listener = id_of(&mut hosts.b, server);
    hosts.b.bind(listener, "0.0.0.0:9").unwrap();
    hosts.b.cma.listen(listener, 0, &hosts.b.system).unwrap();
    let active = id_of(&mut hosts.a, client);
    hosts.a.resolve_addr(active, "10.0.0.2:9");
    hosts.a.resolve_route(active);
    hosts.connect(active, &ConnParam::default());
    let Some(event) = hosts.b.event() else {
        let refused = hosts.a.event().expect("a refusal");
        let expected = match client {
            QpType::Ud => (CmaEventType::Unreachable, 2),
            _ => (CmaEventType::Rejected, 28),
        };
        assert_eq!((refused.event_type, refused.status), expected, "{client:?} to {server:?}");
        return false;
    };
    assert_eq!(event.event_type, CmaEventType::ConnectRequest);
    true
}

/// A queue pair of one type cannot communicate with one of another type (cma.c,
/// `cma_ib_check_req_qp_type`).
#[test]
fn a_listener_serves_only_requests_for_its_type_of_queue_pair() {
    use QpType::{Rc, Uc, Ud, XrcRecv, XrcSend};
    for server in [Rc, Uc, Ud, XrcRecv] {
        let served = [Rc, Uc, Ud, XrcSend].into_iter().filter(|client| is_served(*client, server));
        let expected = if server == XrcRecv { XrcSend } else { server };
        assert_eq!(served.collect::<Vec<_>>(), [expected], "{server:?}");
    }
}

/// Fills the backlog of host B by requests of host A, with queue pairs from 1. Then a third host
/// sends requests. Returns the hosts, and the queue pairs of the requests that wait.
fn waiting(backlog: u32, of_third: &[u32]) -> (TwoHosts, Vec<u32>) {
    let mut hosts = TwoHosts::new();
    hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", backlog as i32);
    for qpn in 1..=backlog {
        hosts.begin(9, qpn);
    }
    hosts.run();
    let mut third = Host::new("10.0.0.3", 33);
    for qpn in of_third {
        let id = third.resolved(PortSpace::TCP, "10.0.0.2:9");
        let param = ConnParam { qpn: Qpn::masked(*qpn), ..ConnParam::default() };
        third.cma.connect(hosts.now, id, &param).unwrap();
        while let Some((_, sent)) = third.cma.poll_transmit() {
            let path = CmPath { local: sent.path.remote, remote: sent.path.local };
            hosts.b.cma.receive(hosts.now, hosts.b.key, path, &sent.mad);
        }
    }
    let waiting = std::iter::from_fn(|| hosts.b.event()).map(|event| match event.param {
        EventParam::Conn(conn) => conn.qpn.value(),
        other => panic!("{other:?}"),
    });
    let waiting = waiting.collect();
    (hosts, waiting)
}

#[test]
fn a_peer_that_fills_a_backlog_leaves_another_one_a_share() {
    // After the first request each peer has one of two, and a second one would not be more equal.
    let (mut hosts, left) = waiting(2, &[11, 12]);
    assert_eq!(left, [2, 11], "the oldest request made room");
    // The peer of the removed request repeats it.
    hosts.now = hosts.a.cma.next_deadline().unwrap();
    hosts.a.cma.handle_timeout(hosts.now);
    hosts.run();
    let repeated = hosts.b.expect(CmaEventType::ConnectRequest);
    assert!(matches!(repeated.param, EventParam::Conn(conn) if conn.qpn.value() == 1));
    assert_eq!(hosts.b.event(), None);
    hosts.a.cma.destroy_all(hosts.now);
    hosts.b.cma.destroy_all(hosts.now);
    hosts.assert_empty();
}

#[test]
fn a_peer_keeps_a_share_that_is_at_most_one_larger() {
    assert_eq!(waiting(1, &[11]).1, [1]);
    assert_eq!(waiting(3, &[11, 12]).1, [2, 3, 11]);
    assert_eq!(waiting(7, &[11, 12, 13, 14]).1, [4, 5, 6, 7, 11, 12, 13]);
}
