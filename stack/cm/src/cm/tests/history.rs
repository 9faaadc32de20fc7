//! Ids of a peer's new process that equal ids of its earlier process, which this side remembers.

use urxe_wire::Qpn;
use urxe_wire::mad::{
    Attribute, CmMessage, CommId, Dreq, Mad, PrivateData, RejReason, Req, Rtu, SidrRep, SidrReq,
    TransactionId,
};

use super::pair::{SERVICE, manager, path, reply, request};
use crate::cm::table::CmState;
use crate::cm::{CmEventKind, ConnectionManager};
use crate::test_network::SECOND_NS;
use urxe_types::time::Time;

const THEIRS: CommId = CommId(4);

fn listening() -> ConnectionManager {
    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 8).unwrap();
    cm
}

/// Delivers a message of the peer, and returns the reply.
fn deliver(
    cm: &mut ConnectionManager,
    tid: u64,
    message: impl Into<CmMessage>,
) -> Option<CmMessage> {
    cm.receive(Time::ZERO, path(1), &Mad::new(TransactionId(tid), message.into()).to_bytes());
    cm.poll_transmit().map(|answer| Mad::parse(&answer.mad).unwrap().message)
}

fn req(qpn: u32) -> Req {
    Req {
        local_comm_id: THEIRS,
        primary_local_gid: path(1).remote,
        primary_remote_gid: path(1).local,
        ..request(qpn)
    }
}

/// Returns the request that the program receives.
fn take_request(cm: &mut ConnectionManager) -> Option<CommId> {
    let event = cm.poll_event()?;
    matches!(event.kind, CmEventKind::Request { .. }).then_some(event.id)
}

#[test]
fn a_request_by_a_remembered_id_is_a_new_one() {
    let mut cm = listening();
    assert_eq!(deliver(&mut cm, 1, req(5)), None);
    let first = take_request(&mut cm).unwrap();
    cm.accept(Time::ZERO, first, reply(6), 0).unwrap();
    cm.poll_transmit().unwrap();
    let ids = (THEIRS, first);
    deliver(
        &mut cm,
        1,
        Rtu { local_comm_id: ids.0, remote_comm_id: ids.1, private_data: PrivateData::NONE },
    );
    // While the connection exists, only the id counts. Timeouts or a DREQ end the connection.
    assert_eq!(deliver(&mut cm, 9, req(7)), None);
    let remote_qpn = Qpn::masked(6);
    let dreq = Dreq {
        local_comm_id: ids.0,
        remote_comm_id: ids.1,
        remote_qpn,
        private_data: PrivateData::NONE,
    };
    deliver(&mut cm, 2, dreq);
    cm.confirm_disconnect(Time::ZERO, first, PrivateData::NONE).unwrap();
    cm.poll_transmit().unwrap();
    assert_eq!(cm.state(first), Some(CmState::Timewait));
    while cm.poll_event().is_some() {}

    let Some(CmMessage::Rej(rej)) = deliver(&mut cm, 1, req(5)) else {
        panic!("a late copy of the first")
    };
    assert_eq!(rej.reason, RejReason::STALE_CONN);
    assert_eq!(deliver(&mut cm, 1, req(7)), None);
    let second = take_request(&mut cm).unwrap();
    cm.accept(Time::ZERO, second, reply(8), 0).unwrap();
    cm.poll_transmit().unwrap();
    // The end of the first connection's TIMEWAIT must not remove the second from the tables.
    let end = cm.next_deadline().unwrap();
    assert!(end < Time::from_ns(SECOND_NS));
    cm.handle_timeout(end);
    assert_eq!(cm.state(first), Some(CmState::Idle));
    let reply = deliver(&mut cm, 1, req(7));
    assert!(matches!(reply, Some(CmMessage::Rep(rep)) if rep.local_qpn.value() == 8));
    assert_eq!(cm.counters().duplicates(Attribute::Req), 3);
}

#[test]
fn another_transaction_is_a_new_sidr_request() {
    let mut cm = listening();
    let sidr = SidrReq { request_id: THEIRS, service_id: SERVICE, ..SidrReq::default() };
    for (tid, qpn) in [(1, 5), (2, 6)] {
        assert_eq!(deliver(&mut cm, tid, sidr), None);
        let id = take_request(&mut cm).unwrap();
        let qpn = Qpn::masked(qpn);
        cm.send_sidr_rep(Time::ZERO, id, SidrRep { qpn, ..SidrRep::default() }).unwrap();
        cm.poll_transmit().unwrap();
        for _ in 0..2 {
            let repeated = deliver(&mut cm, tid, sidr);
            assert!(
                matches!(repeated, Some(CmMessage::SidrRep(rep)) if rep.qpn == qpn),
                "{repeated:?}"
            );
        }
    }
}
