//! Calls of the program: errors, retransmission times and negotiated parameters.

use urxe_wire::mad::{
    Answered, Attribute, Bits, CmMessage, CommId, Guid, Mad, Mra, PrivateData, RejReason, Rep, Req,
    SpreadVendorId, TransactionId,
};
use urxe_wire::{Gid, Psn, Qpn};

use super::pair::{NO_INFO, Pair, SERVICE, Script, manager, path, reply, request, route};
use crate::cm::table::{CmState, Input};
use crate::cm::{CmError, CmEventKind, ack_timeout};
use crate::test_network::{Fate, LATENCY_NS, SECOND_NS};
use urxe_types::time::Time;

#[test]
fn calls_in_a_wrong_state_name_the_state() {
    let mut cm = manager(3, 1);
    let id = cm.connect(Time::ZERO, route(0), request(1), 0, false).unwrap();
    assert_eq!(id.slot(), 3);
    let state = CmState::ReqSent;
    let error = |call| Err(CmError::State { id, state, call });
    assert_eq!(cm.accept(Time::ZERO, id, reply(1), 0), error(Input::CallRep));
    assert_eq!(cm.confirm(Time::ZERO, id, PrivateData::NONE), error(Input::CallRtu));
    assert_eq!(cm.disconnect(Time::ZERO, id, PrivateData::NONE), error(Input::CallDreq));
    assert_eq!(cm.confirm_disconnect(Time::ZERO, id, PrivateData::NONE), error(Input::CallDrep));
    assert_eq!(cm.communication_established(Time::ZERO, id), error(Input::CommEstablished));
    assert_eq!(
        cm.send_mra(Time::ZERO, id, Bits::masked(1), PrivateData::NONE),
        error(Input::CallMra)
    );
    let text = cm.disconnect(Time::ZERO, id, PrivateData::NONE).unwrap_err();
    assert_eq!(
        text.to_string(),
        format!("connection {id} is in state REQ_SENT, which does not allow sending a DREQ")
    );
    assert_eq!(text.errno(), libc::EINVAL);
    cm.destroy(Time::ZERO, id).unwrap();
    assert_eq!(cm.destroy(Time::ZERO, id), Err(CmError::UnknownId(id)));
    assert_eq!(cm.destroy(Time::ZERO, CommId(5)), Err(CmError::UnknownId(CommId(5))));
}

#[test]
fn a_service_has_one_listener_an_address() {
    let mut cm = manager(0, 1);
    let here = path(1).local;
    let all = cm.listen(SERVICE, None, 1).unwrap();
    let one = cm.listen(SERVICE, Some(here), 1).unwrap();
    for local in [None, Some(here)] {
        let error = cm.listen(SERVICE, local, 1).unwrap_err();
        assert_eq!((error, error.errno()), (CmError::InUse(SERVICE), libc::EADDRINUSE));
    }
    cm.listen(SERVICE, Some(Gid::from_ip([1, 2, 3, 4].into())), 1).unwrap();
    cm.unlisten(all).unwrap();
    assert_eq!(cm.unlisten(all), Err(CmError::UnknownListener));
    assert_ne!(cm.listen(SERVICE, None, 1).unwrap(), one);
}

/// Returns the times at which one side sends a MAD, until it stops.
fn times_of(pair: &mut Pair, attribute: Attribute, until: Time) -> Vec<u64> {
    let mut times = Vec::new();
    let mut last = 0;
    while let Some(deadline) = pair.sides[0].cm.next_deadline().or(pair.sides[1].cm.next_deadline())
    {
        if deadline > until {
            break;
        }
        pair.run(deadline, |_, transmit| {
            if transmit.mad[17] == attribute.id() as u8 {
                times.push(deadline.as_ns());
            }
            Fate::Lose
        });
        assert!(pair.now.as_ns() >= last);
        last = pair.now.as_ns();
    }
    times
}

#[test]
fn a_req_is_sent_sixteen_times_at_the_interval_asked_for() {
    let mut pair = Pair::new(Script::Closes(0), 1);
    pair.send_request(0, 0x11);
    pair.run(Time::from_ns(1), |_, _| Fate::Lose);
    let times = times_of(&mut pair, Attribute::Req, Time::from_ns(1_000 * SECOND_NS));
    // Two packet life times of 4.096 µs · 2^16, and the peer's reply time of 4.096 µs · 2^20.
    let interval = 2 * (4_096 << 16) + (4_096 << 20);
    assert_eq!(times, (1..=15).map(|n| n * interval).collect::<Vec<_>>());
    let [active, _] = &pair.sides;
    assert_eq!((active.timed_out, active.cm.connection_count()), (1, 0));
    assert_eq!(active.cm.counters().sent(Attribute::Req), 16);
    assert_eq!(active.cm.counters().tx_retries[0], 15);
    // The peer receives a REJ, in case only its replies were lost.
    assert!(
        matches!(pair.trace.last(), Some((0, mad)) if matches!(mad.message, CmMessage::Rej(rej)
        if rej.reason == RejReason::TIMEOUT && rej.info_length.value() == 8))
    );
}

#[test]
fn an_mra_slows_the_repetitions_down() {
    let mut cm = manager(1, 1);
    let id = cm.connect(Time::ZERO, route(0), request(1), 0, false).unwrap();
    let service_timeout = Bits::masked(24);
    let mra = Mra {
        local_comm_id: CommId(7),
        remote_comm_id: id,
        answered: Answered::Req,
        service_timeout,
        ..Mra::default()
    };
    let mad = Mad::new(TransactionId(0), mra);
    let now = Time::from_ns(SECOND_NS);
    cm.receive(now, path(0), &mad.to_bytes());
    assert_eq!(cm.state(id), Some(CmState::MraReqRcvd));
    assert_eq!(cm.next_deadline(), Some(now.plus_ns((4_096 << 24) + (4_096 << 17))));
    assert_eq!(cm.poll_event().map(|event| event.kind), Some(CmEventKind::Message(mad)));
    cm.receive(now, path(0), &mad.to_bytes());
    assert_eq!(cm.counters().duplicates(Attribute::Mra), 1);
}

#[test]
fn both_sides_agree() {
    let mut pair = Pair::new(Script::Closes(0), 1);
    let mut req = request(0x11);
    req.ece_vendor_id = Bits::masked(0x15b3);
    let id = pair.sides[0].cm.connect(Time::ZERO, route(0), req, 0x77, false).unwrap();
    pair.sides[0].held.push(id);
    pair.run(Time::from_ns(LATENCY_NS - 1), |_, _| Fate::Deliver);
    pair.run(Time::from_ns(SECOND_NS), |_, _| Fate::Deliver);
    let passive_id = pair.sides[1].held[0];
    let active = *pair.sides[0].cm.agreed(id).unwrap();
    let passive = *pair.sides[1].cm.agreed(passive_id).unwrap();
    assert_eq!((active.local_qpn, active.remote_qpn), (passive.remote_qpn, passive.local_qpn));
    assert_eq!((active.rq_psn, active.sq_psn), (passive.sq_psn, passive.rq_psn));
    assert_eq!(
        (active.initiator_depth, active.responder_resources),
        (passive.responder_resources, passive.initiator_depth)
    );
    assert_eq!((active.initiator_depth, passive.initiator_depth), (2, 1));
    assert_eq!((active.path_mtu, active.retry_count), (passive.path_mtu, passive.retry_count));
    // Each side uses the retry count that the other side requested.
    assert_eq!((active.rnr_retry_count.value(), passive.rnr_retry_count.value()), (5, 6));
    assert_eq!((active.ack_timeout, passive.ack_timeout), (17, 17));
    assert_eq!(passive.ece, (0x15b3, 0x77));
    assert_eq!(active.ece, (0, 0));
}

#[test]
fn options_of_enhanced_connection_establishment_are_returned() {
    let mut cm = manager(1, 1);
    let id = cm.connect(Time::ZERO, route(0), request(1), 0, false).unwrap();
    let vendor = SpreadVendorId(Bits::masked(0x1234));
    let rep =
        Rep { local_comm_id: CommId(9), remote_comm_id: id, ece_vendor_id: vendor, ..reply(2) };
    let mad = Mad { attribute_modifier: 0x8001, ..Mad::new(TransactionId(0), rep) };
    cm.receive(Time::ZERO, path(0), &mad.to_bytes());
    assert_eq!(cm.agreed(id).unwrap().ece, (0x1234, 0x8001));
}

/// The kernel stores an alternate path, but does not use it. IBTA 12.7.20.
#[test]
fn an_alternate_path_is_kept_and_not_accepted() {
    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 1).unwrap();
    let alternate = Gid::from_ip([10, 1, 0, 1].into());
    let req = Req {
        local_comm_id: CommId(4),
        primary_local_gid: path(1).remote,
        primary_remote_gid: path(1).local,
        alternate_local_gid: alternate,
        ..request(5)
    };
    cm.receive(Time::ZERO, path(1), &Mad::new(TransactionId(1), req).to_bytes());
    let id = cm.poll_event().unwrap().id;
    assert_eq!(cm.agreed(id).unwrap().req.alternate_local_gid, alternate);
    cm.accept(Time::ZERO, id, reply(6), 0).unwrap();
    let mad = Mad::parse(&cm.poll_transmit().unwrap().mad).unwrap();
    let CmMessage::Rep(rep) = mad.message else { panic!() };
    assert_eq!(rep.failover_accepted.value(), 1);
}

#[test]
fn a_rejection_carries_the_programs_data() {
    let mut pair = Pair::new(Script::PassiveRejects, 1);
    pair.send_request(0, 1);
    pair.run(Time::from_ns(SECOND_NS), |_, _| Fate::Deliver);
    assert_eq!(pair.sides[0].refused, [RejReason::CONSUMER_DEFINED]);
    let Some((1, mad)) = pair.trace.last() else { panic!() };
    let CmMessage::Rej(rej) = mad.message else { panic!() };
    assert_eq!((&rej.private_data.bytes()[..3], rej.answered), (&b"no\0"[..], Answered::Req));
    let _ = NO_INFO;
}

/// In a capture of kernel 6.12 with `rdma_rxe`: delay 15, life time 16, timeout 17 in the REQ.
#[test]
fn ack_timeouts_follow_the_kernels_rule() {
    assert_eq!(ack_timeout(15, 16), 17);
    for delay in 0..32 {
        for life_time in 0..32_u8 {
            let (big, small) = (delay.max(life_time + 1), delay.min(life_time + 1));
            let want = (big + u8::from(big - small <= 1)).min(31);
            assert_eq!(ack_timeout(delay, life_time), want, "delay {delay}, life time {life_time}");
        }
    }
}

#[test]
fn ten_thousand_connections_leave_nothing() {
    let mut pair = Pair::new(Script::Closes(0), 1);
    for round in 0..2_000_u32 {
        for n in 0..5 {
            pair.send_request(0, 0x100 + (round * 5 + n) % 0x1000);
        }
        pair.run(pair.now.plus_ns(10 * LATENCY_NS), |_, _| Fate::Deliver);
        pair.trace.clear();
        pair.close();
        let end = pair.now.plus_ns(SECOND_NS);
        pair.run(end, |_, _| Fate::Deliver);
    }
    assert_eq!([pair.sides[0].established, pair.sides[1].established], [10_000, 10_000]);
    pair.assert_idle("after all");
}

/// IBTA vol. 1, 12.10.4.
#[test]
fn of_two_requests_that_of_the_greater_guid_and_queue_pair_stays() {
    for (guid, qpn, stays) in [(-1, 9, true), (1, 1, false), (0, 4, true), (0, 6, false)] {
        let (path, now) = (path(0), Time::ZERO);
        let mut cm = manager(0, 1);
        let id = cm.connect(now, route(0), request(5), 0, true).unwrap();
        let own = Mad::parse(&cm.poll_transmit().unwrap().mad).unwrap();
        let CmMessage::Req(own) = own.message else { panic!("{own:?}") };
        let theirs = Req {
            local_comm_id: CommId(4),
            local_ca_guid: Guid(own.local_ca_guid.0.wrapping_add_signed(guid)),
            primary_local_gid: path.remote,
            primary_remote_gid: path.local,
            ..request(qpn)
        };
        cm.receive(now, path, &Mad::new(TransactionId(1), theirs).to_bytes());
        let is_asked = cm.poll_event().is_some_and(|event| {
            assert!(event.id == id && matches!(event.kind, CmEventKind::Request { .. }));
            true
        });
        assert_eq!(is_asked, !stays, "GUID {guid:+}, queue pair {qpn}");
    }
}

#[test]
fn a_repeated_rep_changes_no_parameter() {
    let mut cm = manager(0, 1);
    let id = cm.connect(Time::ZERO, route(0), request(5), 0, false).unwrap();
    cm.poll_transmit().unwrap();
    let mut agreed = Vec::new();
    for psn in [7, 8] {
        let ids = Rep { local_comm_id: CommId(4), remote_comm_id: id, ..reply(6) };
        let target_ack_delay = Bits::masked(10 + psn);
        let rep = Rep { starting_psn: Psn::new(psn), target_ack_delay, ..ids };
        cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(1), rep).to_bytes());
        let known = cm.agreed(id).unwrap();
        agreed.push((known.sq_psn, known.remote_qpn, known.ack_timeout));
    }
    let life_time = route(0).packet_life_time.value() as u8;
    assert_eq!(agreed, [(Psn::new(7), Qpn::masked(6), ack_timeout(17, life_time)); 2]);
    assert!(cm.poll_transmit().is_none());
}
