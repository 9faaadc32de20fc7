//! Messages of the peer of a connection: their effect on its state, and the replies to them.

use std::collections::BTreeSet;

use urxe_wire::mad::{
    Answered, Attribute, Bits, CmMessage, CommId, Dreq, Guid, Mad, Mra, PrivateData, Rej,
    RejReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, TransactionId,
};

use super::pair::{NO_INFO, Pair, SERVICE, Script, manager, path, reply, request, route};
use crate::cm::connection::exponent_ns;
use crate::cm::table::CmState;
use crate::cm::{CmConfig, CmEventKind, ConnectionManager};
use crate::test_network::{Fate, SECOND_NS};
use urxe_types::time::Time;

/// The id of the peer.
const THEIRS: CommId = CommId(0x77);
const CONFIG: CmConfig = CmConfig::new(1, 1, Guid(5));

fn receive(cm: &mut ConnectionManager, message: impl Into<CmMessage>) {
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(1), message).to_bytes());
}

#[track_caller]
fn sent(cm: &mut ConnectionManager) -> Mad {
    Mad::parse(&cm.poll_transmit().expect("a MAD").mad).unwrap()
}

/// Returns the peer's REQ.
fn req_of_peer() -> Req {
    let (primary_local_gid, primary_remote_gid) = (path(0).remote, path(0).local);
    Req { local_comm_id: THEIRS, primary_local_gid, primary_remote_gid, ..request(0x22) }
}

/// Returns a connection manager that has received a REQ, and the id of the connection.
fn asked(config: CmConfig) -> (ConnectionManager, CommId) {
    let mut cm = ConnectionManager::new(config);
    cm.listen(SERVICE, None, 1).unwrap();
    receive(&mut cm, req_of_peer());
    let id = cm.poll_event().unwrap().id;
    (cm, id)
}

/// cm.c, `cm_rej_handler`. After a stale connection, packets of the old one may be in flight. If
/// both sides request the connection, the peer may not listen yet.
#[test]
fn the_reason_of_a_rejection_decides_the_state_after_it() {
    let cases = [
        (false, RejReason::CONSUMER_DEFINED, CmState::Idle),
        (false, RejReason::INVALID_SERVICE_ID, CmState::Idle),
        (false, RejReason::STALE_CONN, CmState::Timewait),
        (true, RejReason::CONSUMER_DEFINED, CmState::Idle),
        (true, RejReason::INVALID_SERVICE_ID, CmState::ReqSent),
        (true, RejReason::STALE_CONN, CmState::Timewait),
    ];
    for (is_peer, reason, state) in cases {
        let mut cm = manager(1, 1);
        let id = cm.connect(Time::ZERO, route(0), request(5), 0, is_peer).unwrap();
        let answered = Answered::Req;
        receive(&mut cm, Rej { remote_comm_id: id, answered, reason, ..Rej::default() });
        assert_eq!(cm.state(id), Some(state), "{reason}, peer to peer: {is_peer}");
        assert_eq!(cm.poll_event().is_none(), state == CmState::ReqSent, "{reason}");
    }
}

/// cm.c, `cm_format_rej`.
#[test]
fn a_rej_names_the_message_that_it_rejects() {
    let rejected = |cm: &mut ConnectionManager, id| {
        let reason = RejReason::CONSUMER_DEFINED;
        cm.reject(Time::ZERO, id, reason, NO_INFO, PrivateData::NONE).unwrap();
        let CmMessage::Rej(rej) = sent(cm).message else { panic!("no REJ") };
        assert_eq!(rej.remote_comm_id, THEIRS);
        (rej.local_comm_id, rej.answered)
    };
    let delay = |cm: &mut ConnectionManager, id| {
        cm.send_mra(Time::ZERO, id, Bits::masked(20), PrivateData::NONE).unwrap();
        sent(cm);
    };
    let (mut cm, id) = asked(CONFIG);
    assert_eq!(rejected(&mut cm, id), (CommId::NONE, Answered::Req));
    let (mut cm, id) = asked(CONFIG);
    delay(&mut cm, id);
    assert_eq!(rejected(&mut cm, id), (id, Answered::Req));
    let (mut cm, id) = asked(CONFIG);
    cm.accept(Time::ZERO, id, reply(9), 0).unwrap();
    sent(&mut cm);
    assert_eq!(rejected(&mut cm, id), (id, Answered::Other));
    for is_delayed in [false, true] {
        let mut cm = manager(1, 1);
        let id = cm.connect(Time::ZERO, route(0), request(5), 0, false).unwrap();
        sent(&mut cm);
        receive(&mut cm, Rep { local_comm_id: THEIRS, remote_comm_id: id, ..reply(6) });
        if is_delayed {
            delay(&mut cm, id);
        }
        assert_eq!(rejected(&mut cm, id), (id, Answered::Rep));
    }
}

/// The peer's REQ crosses this side's, which the peer has answered by an MRA.
#[test]
fn an_mra_does_not_end_the_wait_for_a_crossing_request() {
    let mut cm = manager(0, 1);
    let id = cm.connect(Time::ZERO, route(0), request(5), 0, true).unwrap();
    let answered = Answered::Req;
    receive(&mut cm, Mra { remote_comm_id: id, answered, ..Mra::default() });
    assert_eq!(cm.state(id), Some(CmState::MraReqRcvd));
    cm.poll_event().unwrap();
    receive(&mut cm, Req { local_ca_guid: Guid(u64::MAX), ..req_of_peer() });
    let event = cm.poll_event().expect("the request of the peer");
    assert_eq!(event.id, id);
    assert!(matches!(event.kind, CmEventKind::Request { listener: None, .. }), "{event:?}");
}

#[test]
fn a_reply_has_the_transaction_of_its_request() {
    let mut pair = Pair::new(Script::Closes(0), 1);
    pair.send_request(0, 1);
    pair.run(Time::from_ns(SECOND_NS), |_, _| Fate::Deliver);
    pair.close();
    pair.run(Time::from_ns(2 * SECOND_NS), |_, _| Fate::Deliver);
    let of = |attribute| {
        let mut mads = pair.trace.iter().map(|(_, mad)| mad);
        let mad = mads.find(|mad| mad.message.attribute() == attribute);
        mad.unwrap_or_else(|| panic!("no {attribute}")).tid
    };
    let req = of(Attribute::Req);
    assert_eq!([of(Attribute::Rep), of(Attribute::Rtu)], [req; 2]);
    assert_eq!(of(Attribute::Drep), of(Attribute::Dreq));
    assert_eq!(of(Attribute::Dreq).0, req.0.wrapping_add(1 << 32), "the next transaction");
}

#[test]
fn a_transaction_has_the_id_of_its_connection_and_a_random_number() {
    let mut cm = manager(1, 1);
    let req = SidrReq { service_id: SERVICE, ..SidrReq::default() };
    let ids = [
        cm.connect(Time::ZERO, route(0), request(5), 0, false).unwrap(),
        cm.connect(Time::ZERO, route(0), request(6), 0, false).unwrap(),
        cm.send_sidr_req(Time::ZERO, (path(0), 0), req, SECOND_NS, 1).unwrap(),
    ];
    let numbers = ids.map(|id| {
        let tid = sent(&mut cm).tid.0;
        assert_eq!(CommId(tid as u32), id);
        tid >> 32
    });
    assert_eq!(BTreeSet::from(numbers).len(), ids.len(), "{numbers:?}");
}

#[test]
fn releasing_a_connection_removes_only_its_events() {
    let mut cm = manager(1, 1);
    let ids = [5, 6].map(|qpn| cm.connect(Time::ZERO, route(0), request(qpn), 0, false).unwrap());
    for id in ids {
        receive(&mut cm, Rej { remote_comm_id: id, answered: Answered::Req, ..Rej::default() });
    }
    cm.destroy(Time::ZERO, ids[0]).unwrap();
    assert_eq!(cm.poll_event().map(|event| event.id), Some(ids[1]));
    assert_eq!(cm.poll_event(), None);
}

#[test]
fn timewait_of_the_passive_side_lasts_as_long_as_its_reply_may_be_repeated() {
    let (mut cm, id) = asked(CONFIG);
    let exponent = cm.agreed(id).unwrap().ack_timeout;
    cm.accept(Time::ZERO, id, reply(9), 0).unwrap();
    cm.destroy(Time::ZERO, id).unwrap();
    assert!(!cm.is_idle());
    let end = Time::from_ns(exponent_ns(exponent.into()));
    assert_eq!(cm.next_deadline(), Some(end));

    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 1).unwrap();
    let req = SidrReq { request_id: THEIRS, service_id: SERVICE, ..SidrReq::default() };
    receive(&mut cm, req);
    let id = cm.poll_event().unwrap().id;
    cm.send_sidr_rep(Time::ZERO, id, SidrRep::default()).unwrap();
    let first = sent(&mut cm);
    assert_eq!(cm.next_deadline(), Some(Time::from_ns(exponent_ns(22))));
    receive(&mut cm, req);
    assert_eq!((sent(&mut cm), cm.poll_event()), (first, None), "a repeated request");
}

#[test]
fn a_dreq_before_the_rtu_starts_no_keep_alive_probes() {
    let (mut cm, id) = asked(CmConfig { keep_alive_ns: Some(SECOND_NS), ..CONFIG });
    cm.accept(Time::ZERO, id, reply(9), 0).unwrap();
    let remote_qpn = reply(9).local_qpn;
    let ids = Dreq { local_comm_id: THEIRS, remote_comm_id: id, ..Dreq::default() };
    receive(&mut cm, Dreq { remote_qpn, ..ids });
    assert_eq!((cm.state(id), cm.next_deadline()), (Some(CmState::DreqRcvd), None));
}

#[test]
fn refused_service_requests_learn_the_reason() {
    let mut cm = ConnectionManager::new(CmConfig { max_connections: 1, ..CONFIG });
    cm.listen(SERVICE, None, 5).unwrap();
    let mut ask = |request_id, service_id| {
        receive(&mut cm, SidrReq { request_id, service_id, ..SidrReq::default() });
        let reply = cm.poll_transmit().map(|sent| Mad::parse(&sent.mad).unwrap().message);
        reply.map(|reply| {
            let CmMessage::SidrRep(rep) = reply else { panic!("{reply}") };
            assert_eq!((rep.request_id, rep.service_id), (request_id, service_id));
            rep.status
        })
    };
    assert_eq!(ask(CommId(1), ServiceId(9)), Some(SidrStatus::UNSUPPORTED));
    assert_eq!(ask(CommId(2), SERVICE), None);
    assert_eq!(ask(CommId(3), SERVICE), Some(SidrStatus::REJECT), "there is no space");
}

#[test]
fn a_packet_that_is_no_mad_is_only_counted() {
    let mut cm = manager(1, 1);
    for count in 1..=3 {
        cm.receive(Time::ZERO, path(0), &[0; 10]);
        assert_eq!(cm.counters().malformed.iter().sum::<u64>(), count);
    }
    assert!(cm.is_idle());
}
