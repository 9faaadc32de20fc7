//! Shared receive queues: who takes what, what errors leave behind, what is refused.

use super::*;
use crate::cq::{AsyncEvent, QpEventType, SrqEventType};
use crate::qp::wr::PostError;
use crate::srq::error::{CreateSrqError, DestroySrqError, SrqError};
use crate::srq::{SrqAttr, SrqInit};

const PART: u64 = 4096;

fn srq_of(end: &End, max_wr: u32) -> Arc<Srq> {
    let attr = SrqAttr { max_wr, max_sge: 2, srq_limit: 0 };
    end.device.create_srq(&SrqInit { pd: end.pd, attr, xrc: None, context: 0 }).unwrap()
}

pub(super) fn post_to(srq: &Srq, end: &End, wr_id: u64) {
    let sges = [end.sge(wr_id * PART, 100), end.sge(wr_id * PART + 100, PART as u32 - 100)];
    srq.post(&[RecvRequest { wr_id, sges: &sges }]).unwrap();
}

/// `a` with `n` queue pairs of its own, `b` with as many on one shared receive queue.
pub(super) fn many(n: usize, max_wr: u32) -> (End, End, Wire, Arc<Srq>, Vec<(QpHandle, QpHandle)>) {
    let (a, b, wire) = pair();
    let srq = srq_of(&b, max_wr);
    let pairs = (0..n)
        .map(|_| {
            let (from, to) = (
                create_qp(&a.device, a.pd, &a.cq),
                create_qp_on(&b.device, b.pd, &b.cq, Some(&srq)),
            );
            a.connect_qp(from, to.qpn(), B);
            b.connect_qp(to, from.qpn(), A);
            (from, to)
        })
        .collect();
    (a, b, wire, srq, pairs)
}

pub(super) fn send(a: &End, qp: QpHandle, op: SendOp, sges: &[Sge]) {
    let request = SendRequest {
        wr_id: 7,
        op,
        to: Destination::Peer,
        flags: SendFlags::SIGNALED,
        payload: Payload::Sges(sges),
    };
    a.device.post_send(Time::ZERO, qp, &[request]).unwrap();
}

fn to_error(end: &End, qp: QpHandle) {
    let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    end.device.modify_qp(Time::ZERO, qp, &attr, QpAttrMask::STATE).unwrap();
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
            // A window of 16 buffers goes round; every message has a length and content of its own.
            let (wr_id, len) = (next % 16, 1 + (nr * 13 + round * 977) % 4000);
            next += 1;
            post_to(&srq, &b, wr_id);
            let message: Vec<u8> = (0..len).map(|i| (i * 31 + nr * 7 + round) as u8).collect();
            a.buffer.write(0, &message).unwrap();
            let op = if nr % 2 == 0 { SendOp::Send } else { SendOp::SendImm { imm: nr as u32 } };
            send(&a, *from, op, &[a.sge(0, len as u32)]);
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
    a.buffer.write(0, &pattern(8 * PART as usize)).unwrap();
    for wr_id in 0..8 {
        post_to(&srq, &b, wr_id);
    }
    for (nr, (from, _)) in pairs.iter().enumerate() {
        send(&a, *from, SendOp::Send, &[a.sge(nr as u64 * PART, PART as u32)]);
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
        let before = b.device.counters().value(Counter::SrqDry);
        send(&a, pairs[0].0, op, &[a.sge(0, 3000)]);
        run(&a, &b, &wire);
        assert_eq!(b.device.counters().value(Counter::SrqDry), before + 1);
        assert_eq!(a.device.counters().value(Counter::RcvdRnrErr), before + 1);
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
fn an_error_flushes_what_was_taken_and_leaves_the_rest() {
    let (a, b, wire, srq, pairs) = many(2, 4);
    post_to(&srq, &b, 1);
    post_to(&srq, &b, 2);
    // The first packet of a message takes a receive; the rest never comes.
    send(&a, pairs[0].0, SendOp::Send, &[a.sge(0, 3000)]);
    a.device.transmit_pending(Time::ZERO, &wire);
    let mut packets = lock(&wire.0).pop_front().unwrap();
    packets.bytes.truncate(packets.segment_size);
    b.device.receive(Time::ZERO, &packets.arrived(), &mut ReceiveScratch::default());
    assert_eq!(srq.len(), 1);
    while b.device.events().next_event().is_some() {}
    to_error(&b, pairs[0].1);
    let [wc] = b.completions()[..] else { panic!("one flushed receive") };
    assert_eq!((wc.wr_id, wc.status, wc.qp_num), (1, WcStatus::WrFlushErr, pairs[0].1.qpn()));
    let last = AsyncEvent::Qp(QpEventType::QpLastWqeReached, pairs[0].1.qpn());
    assert_eq!(b.device.events().next_event(), Some(last));
    to_error(&b, pairs[0].1);
    assert_eq!(b.device.events().next_event(), None, "once");
    // The other queue pair goes on with what is left.
    send(&a, pairs[1].0, SendOp::Send, &[a.sge(0, 10)]);
    lock(&wire.0).clear();
    run(&a, &b, &wire);
    assert_eq!(b.completions()[0].wr_id, 2);
    b.device.events().ack(&last);
}

#[test]
fn a_queue_pair_without_a_shared_queue_has_no_last_receive() {
    let (_, b, _) = pair();
    to_error(&b, b.qp);
    assert_eq!(b.device.events().next_event(), None);
}

#[test]
fn a_reset_loses_what_was_taken_and_the_queue_pair_takes_again() {
    let (a, b, wire, srq, pairs) = many(1, 4);
    post_to(&srq, &b, 1);
    post_to(&srq, &b, 2);
    // Too long for its receive: the receive completes in error, the queue pair fails.
    send(&a, pairs[0].0, SendOp::Send, &[a.sge(0, PART as u32 + 1)]);
    run(&a, &b, &wire);
    let [wc] = b.completions()[..] else { panic!("one completion") };
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::LocLenErr));
    for (end, qp) in [(&a, pairs[0].0), (&b, pairs[0].1)] {
        let attr = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        end.device.modify_qp(Time::ZERO, qp, &attr, QpAttrMask::STATE).unwrap();
    }
    a.completions();
    a.connect_qp(pairs[0].0, pairs[0].1.qpn(), B);
    b.connect_qp(pairs[0].1, pairs[0].0.qpn(), A);
    send(&a, pairs[0].0, SendOp::Send, &[a.sge(0, 5)]);
    run(&a, &b, &wire);
    assert_eq!(b.completions()[0].wr_id, 2);
}

#[test]
fn the_limit_event_names_the_queue() {
    let (a, b, wire, srq, pairs) = many(1, 4);
    (0..4).for_each(|wr_id| post_to(&srq, &b, wr_id));
    let limit = SrqAttr { srq_limit: 3, ..SrqAttr::default() };
    srq.modify(&limit, crate::srq::SrqAttrMask::LIMIT).unwrap();
    while b.device.events().next_event().is_some() {}
    for expected in [None, Some(AsyncEvent::Srq(SrqEventType::SrqLimitReached, srq.id())), None] {
        send(&a, pairs[0].0, SendOp::Send, &[a.sge(0, 5)]);
        run(&a, &b, &wire);
        let event = b.device.events().next_event();
        assert_eq!(event, expected);
        event.inspect(|event| b.device.events().ack(event));
    }
}

#[test]
fn receive_buffers_are_checked_against_the_queues_protection_domain() {
    let (a, b, wire) = pair();
    let other = b.device.alloc_pd().unwrap();
    let attr = SrqAttr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    let srq = b.device.create_srq(&SrqInit { pd: other, attr, xrc: None, context: 0 }).unwrap();
    let mr = register(&b.device, other, &b.buffer, Access::LOCAL_WRITE);
    let (from, to) =
        (create_qp(&a.device, a.pd, &a.cq), create_qp_on(&b.device, b.pd, &b.cq, Some(&srq)));
    a.connect_qp(from, to.qpn(), B);
    b.connect_qp(to, from.qpn(), A);
    let sge = Sge { addr: mr.iova, length: 64, lkey: mr.lkey };
    srq.post(&[RecvRequest { wr_id: 1, sges: &[sge] }]).unwrap();
    srq.post(&[RecvRequest { wr_id: 2, sges: &[b.sge(0, 64)] }]).unwrap();
    for status in [WcStatus::Success, WcStatus::LocProtErr] {
        send(&a, from, SendOp::Send, &[a.sge(0, 5)]);
        run(&a, &b, &wire);
        assert_eq!(b.completions()[0].status, status);
    }
}

#[test]
fn refused_combinations_say_why() {
    let (a, b, _, srq, pairs) = many(1, 4);
    let busy = b.device.destroy_srq(&srq).unwrap_err();
    assert_eq!((busy, busy.errno()), (DestroySrqError::Busy { users: 1 }, libc::EBUSY));
    let error = b.device.post_recv(Time::ZERO, pairs[0].1, &[RecvRequest { wr_id: 1, sges: &[] }]);
    assert_eq!(error, Err((0, PostError::SharedReceive)));
    assert_eq!(PostError::SharedReceive.errno(), libc::EINVAL);

    let init = |device: &Device, pd, srq: &Arc<Srq>| {
        let cq = device.create_cq(1, None, 0).unwrap();
        let (send_cq, recv_cq) = (Arc::clone(&cq), cq);
        // Its own sizes of receives are not looked at.
        let cap = QpCap { max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..QpCap::default() };
        let srq = Some(Arc::clone(srq));
        QpInit { qp_type: QpType::Rc, pd, send_cq, recv_cq, srq, cap, sq_sig_all: false }
    };
    let error = a.device.create_qp(&init(&a.device, a.pd, &srq)).unwrap_err();
    assert!(matches!(error, CreateQpError::Srq(SrqError::OtherDevice { .. })), "{error}");
    assert_eq!(error.errno(), libc::EINVAL);
    let qp = b.device.create_qp(&init(&b.device, b.pd, &srq)).unwrap();
    let cap = b.device.query_qp(qp).unwrap().cap;
    assert_eq!((cap.max_recv_wr, cap.max_recv_sge), (0, 0));
    b.device.destroy_qp(Time::ZERO, qp).unwrap();

    b.device.destroy_qp(Time::ZERO, pairs[0].1).unwrap();
    let pd = b.device.alloc_pd().unwrap();
    let attr = SrqAttr { max_wr: 1, max_sge: 0, srq_limit: 0 };
    let lone = b.device.create_srq(&SrqInit { pd, attr, xrc: None, context: 3 }).unwrap();
    let busy = b.device.dealloc_pd(pd).unwrap_err();
    assert_eq!(
        (busy, busy.errno()),
        (DeallocPdError::Busy { qps: 0, srqs: 1, ahs: 0, cqs: 0, mrs: 0, parents: 0 }, libc::EBUSY)
    );
    b.device.destroy_srq(&lone).unwrap();
    assert_eq!(b.device.destroy_srq(&lone), Err(DestroySrqError::NoSrq));
    b.device.dealloc_pd(pd).unwrap();
    let gone = b.device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 }).unwrap_err();
    assert_eq!((gone.errno(), gone), (libc::EINVAL, CreateSrqError::NoPd));
    let error = b.device.create_qp(&init(&b.device, b.pd, &lone)).unwrap_err();
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
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    config.limits.max_srq = 2;
    let device = Device::new(config);
    let pd = device.alloc_pd().unwrap();
    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let create = || device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 });
    let (one, two) = (create().unwrap(), create().unwrap());
    assert_ne!(one.id(), two.id());
    let error = create().unwrap_err();
    assert_eq!((error.errno(), error), (libc::ENOMEM, CreateSrqError::NoneLeft { allowed: 2 }));
    device.destroy_srq(&one).unwrap();
    assert_ne!(create().unwrap().id(), one.id());
}
