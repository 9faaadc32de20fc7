//! Shared receive queues: the order of receives, the effects of errors, refusals.

use super::*;
use urxe_device::cq::{AsyncEvent, QpEventType, SrqEventType};
use urxe_device::qp::work_request::PostError;
use urxe_device::srq::error::{CreateSrqError, DestroySrqError, SrqError};
use urxe_device::srq::{SrqAttr, SrqInit};

const PART: u64 = 4096;

pub(super) fn post_to(srq: &Srq, end: &Host, wr_id: u64) {
    let sges = [end.sge(wr_id * PART, 100), end.sge(wr_id * PART + 100, PART as u32 - 100)];
    srq.post(&[RecvRequest { wr_id, sges: &sges }]).unwrap();
}

/// Returns `a` with `n` queue pairs, and `b` with as many that share a receive queue.
pub(super) fn many(
    n: usize,
    max_wr: u32,
) -> (Host, Host, Wire, Arc<Srq>, Vec<(QpHandle, QpHandle)>) {
    let (a, b, wire) = pair();
    let srq = b.create_srq(b.pd, max_wr, None);
    let connected = || {
        let (from, to) = (a.create_qp(), b.create_qp_on(&srq));
        connect(&a, from, &b, to);
        (from, to)
    };
    let pairs = (0..n).map(|_| connected()).collect();
    (a, b, wire, srq, pairs)
}

#[test]
fn two_hundred_and_fifty_six_queue_pairs_take_from_one_queue() {
    const QPS: usize = 256;
    const ROUNDS: usize = 3;
    let (a, b, wire, srq, pairs) = many(QPS, 16);
    assert_eq!(srq.users(), QPS as u32);
    let mut next = 0;
    for round in 0..ROUNDS {
        for (nr, (from, to)) in pairs.iter().enumerate() {
            // 16 buffers are used in turn. Every message has its own length and content.
            let (wr_id, len) = (next % 16, 1 + (nr * 13 + round * 977) % 4000);
            next += 1;
            post_to(&srq, &b, wr_id);
            let message: Vec<u8> = (0..len).map(|i| (i * 31 + nr * 7 + round) as u8).collect();
            a.write(0, &message);
            let op = if nr % 2 == 0 { SendOp::Send } else { SendOp::SendImm { imm: nr as u32 } };
            a.post_on(*from, op, &[a.sge(0, len as u32)]);
            run(&a, &b, &wire);
            assert!(a.completions().iter().all(|wc| wc.status == WcStatus::Success));
            let [wc] = b.completions()[..] else { panic!("one completion a message") };
            assert_eq!((wc.wr_id, wc.status, wc.byte_len), (wr_id, WcStatus::Success, len as u32));
            assert_eq!((wc.qp_num, wc.imm_data()), (to.qpn(), (nr % 2 == 1).then_some(nr as u32)));
            assert_eq!(b.bytes((wr_id * PART) as usize, len), message);
        }
    }
    assert!(srq.is_empty());
}

#[test]
fn messages_under_way_at_once_hold_a_receive_each() {
    let (a, b, wire, srq, pairs) = many(8, 8);
    a.write(0, &pattern(8 * PART as usize));
    for wr_id in 0..8 {
        post_to(&srq, &b, wr_id);
    }
    for (nr, (from, _)) in pairs.iter().enumerate() {
        a.post_on(*from, SendOp::Send, &[a.sge(nr as u64 * PART, PART as u32)]);
    }
    run(&a, &b, &wire);
    let wcs = b.completions();
    assert_eq!(wcs.len(), 8);
    let mut ids: Vec<_> = wcs.iter().map(|wc| wc.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
    for wc in wcs {
        let nr = pairs.iter().position(|(_, to)| to.qpn() == wc.qp_num).unwrap();
        assert_eq!(
            b.bytes((wc.wr_id * PART) as usize, PART as usize),
            a.bytes(nr * PART as usize, PART as usize)
        );
    }
}

#[test]
fn an_empty_queue_makes_the_peer_wait_and_moves_its_counter() {
    let (a, b, wire, srq, pairs) = many(1, 4);
    for op in [SendOp::Send, SendOp::WriteImm { remote: b.remote(0), imm: 9 }] {
        let before = b.counter(Counter::SrqEmpty);
        a.post_on(pairs[0].0, op, &[a.sge(0, 3000)]);
        run(&a, &b, &wire);
        assert_eq!(b.counter(Counter::SrqEmpty), before + 1);
        assert_eq!(a.counter(Counter::RcvdRnrErr), before + 1);
        assert!(b.completions().is_empty());
        post_to(&srq, &b, 5);
        a.device.handle_timeouts(Time::from_ns(1 << 40));
        run(&a, &b, &wire);
        assert_eq!(b.completions().len(), 1);
        assert_eq!(a.completions().len(), 1);
    }
}

/// IBTA 11.6.3.2.
#[test]
fn an_error_flushes_receives_that_were_taken_and_leaves_the_rest() {
    let (a, b, wire, srq, pairs) = many(2, 4);
    post_to(&srq, &b, 1);
    post_to(&srq, &b, 2);
    // The first packet of a message takes a receive, and the rest never arrives.
    a.post_on(pairs[0].0, SendOp::Send, &[a.sge(0, 3000)]);
    a.transmit(&wire);
    let mut packets = wire.pop().unwrap();
    packets.bytes.truncate(packets.segment_size);
    wire.deliver(&b.device, Time::ZERO, &packets);
    assert_eq!(srq.len(), 1);
    let _ = b.events();
    b.go_to(pairs[0].1, QpState::Err);
    let [wc] = b.completions()[..] else { panic!("one flushed receive") };
    assert_eq!((wc.wr_id, wc.status, wc.qp_num), (1, WcStatus::WrFlushErr, pairs[0].1.qpn()));
    let last = AsyncEvent::Qp(QpEventType::QpLastWqeReached, pairs[0].1.qpn());
    assert_eq!(b.events(), [last]);
    b.go_to(pairs[0].1, QpState::Err);
    assert_eq!(b.events(), [], "once");
    // The other queue pair uses the remaining receive.
    a.post_on(pairs[1].0, SendOp::Send, &[a.sge(0, 10)]);
    let _ = wire.take();
    run(&a, &b, &wire);
    assert_eq!(b.completions()[0].wr_id, 2);
}

#[test]
fn a_queue_pair_without_a_shared_queue_has_no_last_receive() {
    let (_, b, _) = pair();
    b.go_to(b.qp, QpState::Err);
    assert_eq!(b.events(), []);
}

#[test]
fn a_reset_drops_a_receive_that_was_taken_and_the_queue_pair_takes_another() {
    let (a, b, wire, srq, pairs) = many(1, 4);
    post_to(&srq, &b, 1);
    post_to(&srq, &b, 2);
    // The message is too long for its receive, which completes in error, and the queue pair fails.
    a.post_on(pairs[0].0, SendOp::Send, &[a.sge(0, PART as u32 + 1)]);
    run(&a, &b, &wire);
    let [wc] = b.completions()[..] else { panic!("one completion") };
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::LocLenErr));
    for (end, qp) in [(&a, pairs[0].0), (&b, pairs[0].1)] {
        end.go_to(qp, QpState::Reset);
    }
    let _ = a.completions();
    connect(&a, pairs[0].0, &b, pairs[0].1);
    a.post_on(pairs[0].0, SendOp::Send, &[a.sge(0, 5)]);
    run(&a, &b, &wire);
    assert_eq!(b.completions()[0].wr_id, 2);
}

#[test]
fn the_limit_event_names_the_queue() {
    let (a, b, wire, srq, pairs) = many(1, 4);
    (0..4).for_each(|wr_id| post_to(&srq, &b, wr_id));
    let limit = SrqAttr { srq_limit: 3, ..SrqAttr::default() };
    srq.modify(&limit, urxe_device::srq::SrqAttrMask::LIMIT).unwrap();
    let _ = b.events();
    for expected in [None, Some(AsyncEvent::Srq(SrqEventType::SrqLimitReached, srq.id())), None] {
        a.post_on(pairs[0].0, SendOp::Send, &[a.sge(0, 5)]);
        run(&a, &b, &wire);
        assert_eq!(b.events(), expected.as_slice());
    }
}

#[test]
fn receive_buffers_are_checked_against_the_queues_protection_domain() {
    let (a, b, wire) = pair();
    let other = b.device.alloc_pd().unwrap();
    let srq = b.create_srq(other, 4, None);
    let mr = b.register(other, Access::LOCAL_WRITE);
    let (from, to) = (a.create_qp(), b.create_qp_on(&srq));
    connect(&a, from, &b, to);
    let sge = Sge { addr: mr.iova, length: 64, lkey: mr.lkey };
    srq.post(&[RecvRequest { wr_id: 1, sges: &[sge] }]).unwrap();
    srq.post(&[RecvRequest { wr_id: 2, sges: &[b.sge(0, 64)] }]).unwrap();
    for status in [WcStatus::Success, WcStatus::LocProtErr] {
        a.post_on(from, SendOp::Send, &[a.sge(0, 5)]);
        run(&a, &b, &wire);
        assert_eq!(b.completions()[0].status, status);
    }
}

#[test]
fn refused_combinations_say_why() {
    let (a, b, _, srq, pairs) = many(1, 4);
    assert_refused!(b.device.destroy_srq(&srq), DestroySrqError::Busy { users: 1 }, EBUSY);
    let error = b.device.post_recv(Time::ZERO, pairs[0].1, &[RecvRequest { wr_id: 1, sges: &[] }]);
    assert_eq!(error, Err((0, PostError::SharedReceive)));
    assert_eq!(PostError::SharedReceive.errno(), libc::EINVAL);

    let init = |host: &Host, srq: &Arc<Srq>| {
        // Its own receive sizes are not checked.
        let cap = QpCap { max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..QpCap::default() };
        QpInit { srq: Some(Arc::clone(srq)), cap, ..host.init() }
    };
    let created = a.device.create_qp(&init(&a, &srq));
    assert_refused!(created, CreateQpError::Srq(SrqError::OtherDevice { .. }), EINVAL);
    let qp = b.device.create_qp(&init(&b, &srq)).unwrap();
    let cap = b.device.query_qp(qp).unwrap().cap;
    assert_eq!((cap.max_recv_wr, cap.max_recv_sge), (0, 0));
    b.device.destroy_qp(Time::ZERO, qp).unwrap();

    b.device.destroy_qp(Time::ZERO, pairs[0].1).unwrap();
    let pd = b.device.alloc_pd().unwrap();
    let attr = SrqAttr { max_wr: 1, max_sge: 0, srq_limit: 0 };
    let lone = b.device.create_srq(&SrqInit { pd, attr, xrc: None, context: 3 }).unwrap();
    let busy = DeallocPdError::Busy { qps: 0, srqs: 1, ahs: 0, holds: 0, mrs: 0, parents: 0 };
    assert_refused!(b.device.dealloc_pd(pd), error if error == busy, EBUSY);
    b.device.destroy_srq(&lone).unwrap();
    assert_eq!(b.device.destroy_srq(&lone), Err(DestroySrqError::NoSrq));
    b.device.dealloc_pd(pd).unwrap();
    let created = b.device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 });
    assert_refused!(created, CreateSrqError::NoPd, EINVAL);
    let error = b.device.create_qp(&init(&b, &lone)).unwrap_err();
    assert!(matches!(error, CreateQpError::Srq(SrqError::Destroyed)), "{error}");

    for (attr, field) in [
        (SrqAttr { max_wr: 0, ..attr }, "max_wr"),
        (SrqAttr { max_wr: u32::MAX, ..attr }, "max_wr"),
        (SrqAttr { max_sge: 33, ..attr }, "max_sge"),
        (SrqAttr { srq_limit: 2, ..attr }, "srq_limit"),
    ] {
        let error =
            b.device.create_srq(&SrqInit { pd: b.pd, attr, xrc: None, context: 0 }).unwrap_err();
        assert!(error.to_string().starts_with(field), "{error}");
        assert_eq!(error.errno(), libc::EINVAL);
    }
}

#[test]
fn numbers_do_not_come_back_at_once_and_the_table_ends() {
    let device = limits::device(|limits| limits.max_srq = 2);
    let pd = device.alloc_pd().unwrap();
    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let create = || device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 });
    let (one, two) = (create().unwrap(), create().unwrap());
    assert_ne!(one.id(), two.id());
    assert_refused!(create(), CreateSrqError::NoneLeft { allowed: 2 }, ENOMEM);
    device.destroy_srq(&one).unwrap();
    assert_ne!(create().unwrap().id(), one.id());
}
