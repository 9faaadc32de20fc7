//! Work queues: sizes asked for and reported, what completes, what is solicited, draining, messages
//! of no bytes.

use super::srq::{many, post_to, send};
use super::*;
use crate::cq::{ArmKind, AsyncEvent, CompletionChannel, QpEventType};
use crate::qp::wr::PostError;

fn init(end: &End, cap: QpCap, sq_sig_all: bool) -> QpInit {
    QpInit {
        qp_type: QpType::Rc,
        pd: end.pd,
        send_cq: Arc::clone(&end.cq),
        recv_cq: Arc::clone(&end.cq),
        srq: None,
        cap,
        sq_sig_all,
    }
}

fn request<'a>(op: SendOp, flags: SendFlags, payload: Payload<'a>) -> SendRequest<'a> {
    SendRequest { wr_id: 7, op, to: Destination::Peer, flags, payload }
}

#[test]
fn sizes_are_what_was_asked_for_and_nothing_is_a_size_too() {
    let (a, b, wire) = pair();
    for cap in [
        QpCap {
            max_send_wr: 1,
            max_recv_wr: 3,
            max_send_sge: 5,
            max_recv_sge: 7,
            max_inline_data: 1000,
        },
        QpCap {
            max_send_wr: 77,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 33,
        },
        QpCap::default(),
    ] {
        let qp = a.device.create_qp(&init(&a, cap, false)).unwrap();
        assert_eq!(a.device.query_qp(qp).unwrap().cap, cap);
        a.connect_qp(qp, b.qp.qpn(), B);
        assert_eq!(a.device.query_qp(qp).unwrap().cap, cap, "connecting changes no size");
        // Exactly as many as asked for, with as many pieces and as much inline data.
        let sges = vec![a.sge(0, 1); cap.max_send_sge as usize];
        for _ in 0..cap.max_send_wr {
            let one = request(SendOp::Send, SendFlags::empty(), Payload::Sges(&sges));
            a.device.post_send(Time::ZERO, qp, &[one]).unwrap();
        }
        let one = request(SendOp::Send, SendFlags::empty(), Payload::Sges(&[]));
        let full = a.device.post_send(Time::ZERO, qp, &[one]).unwrap_err().1;
        assert_eq!(
            (full, full.errno()),
            (PostError::QueueFull { capacity: cap.max_send_wr }, libc::ENOMEM)
        );
        for wr_id in 0..u64::from(cap.max_recv_wr) {
            a.device.post_recv(Time::ZERO, qp, &[RecvRequest { wr_id, sges: &[] }]).unwrap();
        }
        let full = a
            .device
            .post_recv(Time::ZERO, qp, &[RecvRequest { wr_id: 0, sges: &[] }])
            .unwrap_err()
            .1;
        assert_eq!(
            (full, full.errno()),
            (PostError::QueueFull { capacity: cap.max_recv_wr }, libc::ENOMEM)
        );
    }
    let cap = QpCap { max_send_wr: 1, max_inline_data: 33, ..QpCap::default() };
    let qp = a.device.create_qp(&init(&a, cap, false)).unwrap();
    a.connect_qp(qp, b.qp.qpn(), B);
    let too_much = request(SendOp::Send, SendFlags::INLINE, Payload::Inline(&[&[0; 30], &[0; 4]]));
    let error = a.device.post_send(Time::ZERO, qp, &[too_much]).unwrap_err().1;
    assert_eq!(
        (error, error.errno()),
        (PostError::TooMuchInline { given: 34, allowed: 33 }, libc::EINVAL)
    );
    let just = request(SendOp::Send, SendFlags::INLINE, Payload::Inline(&[&[0; 30], &[0; 3]]));
    a.device.post_send(Time::ZERO, qp, &[just]).unwrap();
    drop(wire);
}

#[test]
fn sq_sig_all_signals_every_send_and_nothing_else_does() {
    for all in [false, true] {
        let (a, b, wire) = pair();
        let cap = QpCap { max_send_wr: 8, max_send_sge: 1, ..QpCap::default() };
        let from = a.device.create_qp(&init(&a, cap, all)).unwrap();
        let to = create_qp(&b.device, b.pd, &b.cq);
        a.connect_qp(from, to.qpn(), B);
        b.connect_qp(to, from.qpn(), A);
        let sges = [a.sge(0, 100)];
        let write = SendOp::Write { remote: b.remote(0) };
        for flags in [SendFlags::empty(), SendFlags::SIGNALED, SendFlags::empty()] {
            a.device
                .post_send(Time::ZERO, from, &[request(write, flags, Payload::Sges(&sges))])
                .unwrap();
        }
        run(&a, &b, &wire);
        assert_eq!(a.completions().len(), if all { 3 } else { 1 });
    }
}

#[test]
fn only_a_solicited_message_or_an_error_wakes_who_armed_for_solicited_ones() {
    let (a, b, wire, srq, pairs) = many(1, 8);
    let channel = Arc::new(CompletionChannel::new(Box::new(NoWake)));
    let cq = b.device.create_cq(8, Some(Arc::clone(&channel)), 0).unwrap();
    let to = create_qp_on(&b.device, b.pd, &cq, Some(&srq));
    let from = create_qp(&a.device, a.pd, &a.cq);
    a.connect_qp(from, to.qpn(), B);
    b.connect_qp(to, from.qpn(), A);
    (0..4).for_each(|wr_id| post_to(&srq, &b, wr_id));
    let (plain, solicited) = (SendFlags::empty(), SendFlags::SOLICITED);
    let target = b.remote(0);
    for (op, flags, wakes) in [
        (SendOp::Send, plain, false),
        (SendOp::Send, solicited, true),
        (SendOp::WriteImm { remote: target, imm: 1 }, plain, false),
        (SendOp::WriteImm { remote: target, imm: 1 }, solicited, true),
    ] {
        assert!(!cq.arm(ArmKind::Solicited));
        // Several packets: the bit stands in the last.
        a.device
            .post_send(Time::ZERO, from, &[request(op, flags, Payload::Sges(&[a.sge(0, 3000)]))])
            .unwrap();
        run(&a, &b, &wire);
        assert_eq!(cq.poll(&mut [Completion::default(); 4]), Ok(1));
        let event = channel.next_event();
        assert_eq!(event.is_some(), wakes, "{op:?} {flags:?}");
        cq.ack_events(event.is_some().into());
    }
    // A flushed receive is an error, and so solicited.
    let own = create_qp(&b.device, b.pd, &cq);
    b.connect_qp(own, pairs[0].0.qpn(), A);
    b.device.post_recv(Time::ZERO, own, &[RecvRequest { wr_id: 1, sges: &[] }]).unwrap();
    assert!(!cq.arm(ArmKind::Solicited));
    let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    b.device.modify_qp(Time::ZERO, own, &attr, QpAttrMask::STATE).unwrap();
    assert!(channel.next_event().is_some());
    cq.ack_events(1);
}

#[test]
fn a_draining_queue_pair_goes_on_receiving_and_resumes_where_it_stopped() {
    let (a, b, wire, srq, pairs) = many(1, 4);
    let (from, to) = pairs[0];
    (0..2).for_each(|wr_id| post_to(&srq, &b, wr_id));
    let to_state = |qp_state, more: QpAttrMask| {
        let attr = QpAttr { qp_state, en_sqd_async_notify: true, ..QpAttr::default() };
        b.device.modify_qp(Time::ZERO, to, &attr, QpAttrMask::STATE | more).unwrap();
    };
    while b.device.events().next_event().is_some() {}
    // One write has begun, one has not.
    send(&b, to, SendOp::Write { remote: a.remote(0) }, &[b.sge(0, 500)]);
    b.device.transmit_pending(Time::ZERO, &wire);
    to_state(QpState::Sqd, QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert!(b.device.query_qp(to).unwrap().sq_draining);
    send(&b, to, SendOp::Write { remote: a.remote(1000) }, &[b.sge(0, 500)]);
    send(&a, from, SendOp::Send, &[a.sge(0, 5)]);
    run(&a, &b, &wire);
    assert_eq!(
        b.device.events().next_event(),
        Some(AsyncEvent::Qp(QpEventType::SqDrained, to.qpn()))
    );
    assert!(!b.device.query_qp(to).unwrap().sq_draining);
    let opcodes: Vec<_> = b.completions().iter().map(|wc| wc.opcode).collect();
    assert_eq!(opcodes.len(), 2, "{opcodes:?}: what had begun, and the receive");
    assert!(opcodes.contains(&WcOpcode::RdmaWrite) && opcodes.contains(&WcOpcode::Recv));
    to_state(QpState::Rts, QpAttrMask::empty());
    run(&a, &b, &wire);
    assert_eq!(b.completions().len(), 1);
    assert_eq!(a.completions().len(), 1);
}

#[test]
fn messages_of_no_bytes_with_no_piece_and_with_pieces_of_no_bytes() {
    let (a, b, wire, srq, pairs) = many(1, 16);
    // A piece of no bytes names no memory: its key is not looked at.
    let nothing = Sge { addr: 0x1234, length: 0, lkey: urxe_wire::Lkey(0xdead) };
    let nowhere = Remote { addr: 0xffff_ffff_ffff_fff0, rkey: urxe_wire::Rkey(0xdead) };
    for sges in [&[][..], &[nothing], &[nothing, nothing, nothing]] {
        for op in [
            SendOp::Send,
            SendOp::SendImm { imm: 5 },
            SendOp::WriteImm { remote: nowhere, imm: 6 },
            SendOp::Write { remote: nowhere },
            SendOp::Read { remote: nowhere },
        ] {
            let takes = !matches!(op, SendOp::Write { .. } | SendOp::Read { .. });
            if takes {
                // The receive, too, may have no piece or an empty one.
                srq.post(&[RecvRequest { wr_id: 1, sges: &sges[..sges.len().min(2)] }]).unwrap();
            }
            send(&a, pairs[0].0, op, sges);
            run(&a, &b, &wire);
            let [sent] = a.completions()[..] else { panic!("one completion of {op:?}") };
            assert_eq!(sent.status, WcStatus::Success, "{op:?} with {} pieces", sges.len());
            let received = b.completions();
            assert_eq!(received.len(), usize::from(takes), "{op:?}");
            for wc in received {
                assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 0));
                let imm = match op {
                    SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. } => Some(imm),
                    _ => None,
                };
                assert_eq!(wc.imm_data(), imm);
            }
        }
    }
    let inline = request(SendOp::SendImm { imm: 9 }, SendFlags::SIGNALED, Payload::Inline(&[]));
    srq.post(&[RecvRequest { wr_id: 1, sges: &[] }]).unwrap();
    a.device.post_send(Time::ZERO, pairs[0].0, &[inline]).unwrap();
    run(&a, &b, &wire);
    assert_eq!(b.completions()[0].imm_data(), Some(9));
}

#[test]
fn more_reads_than_agreed_on_are_never_sent_and_never_served() {
    // The own side keeps to max_rd_atomic: four here, of ten that are posted.
    let (a, b, wire) = pair();
    for nr in 0..10 {
        a.post(SendOp::Read { remote: b.remote(nr * 8) }, &[a.sge(nr * 8, 8)]);
    }
    a.device.transmit_pending(Time::ZERO, &wire);
    let sent: usize = lock(&wire.0).iter().map(|p| p.bytes.len().div_ceil(p.segment_size)).sum();
    assert_eq!(sent, 4);
    run(&a, &b, &wire);
    assert_eq!(a.completions().len(), 10);
    // A peer that goes beyond max_dest_rd_atomic of the other end is refused.
    let qp = create_qp(&a.device, a.pd, &a.cq);
    let one = create_qp(&b.device, b.pd, &b.cq);
    a.connect_qp(qp, one.qpn(), B);
    b.connect_qp(one, qp.qpn(), A);
    let narrow = QpAttr { qp_state: QpState::Sqd, ..QpAttr::default() };
    b.device.modify_qp(Time::ZERO, one, &narrow, QpAttrMask::STATE).unwrap();
    let narrow = QpAttr { max_dest_rd_atomic: 2, ..QpAttr::default() };
    b.device.modify_qp(Time::ZERO, one, &narrow, QpAttrMask::MAX_DEST_RD_ATOMIC).unwrap();
    for nr in 0..4 {
        send(&a, qp, SendOp::Read { remote: b.remote(nr * 8) }, &[a.sge(nr * 8, 8)]);
    }
    run(&a, &b, &wire);
    let statuses: Vec<_> = a.completions().iter().map(|wc| wc.status).collect();
    assert_eq!(
        statuses,
        [WcStatus::Success, WcStatus::Success, WcStatus::RemInvReqErr, WcStatus::WrFlushErr]
    );
    let event = std::iter::from_fn(|| b.device.events().next_event()).last();
    assert_eq!(event, Some(AsyncEvent::Qp(QpEventType::QpReqErr, one.qpn())));
}

#[test]
fn an_atomic_write_is_inline_whatever_the_queue_pair_has_room_for() {
    let (a, b, wire) = pair();
    let cap = QpCap { max_send_wr: 2, max_recv_wr: 1, ..QpCap::default() };
    let (from, to) =
        (a.device.create_qp(&init(&a, cap, true)), b.device.create_qp(&init(&b, cap, true)));
    let (from, to) = (from.unwrap(), to.unwrap());
    a.connect_qp(from, to.qpn(), B);
    b.connect_qp(to, from.qpn(), A);
    let write = SendOp::AtomicWrite { remote: b.remote(8) };
    for word in [[1_u8; 8], [2; 8]] {
        let pieces: [&[u8]; 1] = [&word];
        let one = request(write, SendFlags::INLINE, Payload::Inline(&pieces));
        a.device.post_send(Time::ZERO, from, &[one]).unwrap();
    }
    run(&a, &b, &wire);
    assert!(a.completions().iter().all(|done| done.status == WcStatus::Success));
    assert_eq!(b.bytes(0, 24), [[0; 8], [2; 8], [0; 8]].concat());
}

#[test]
fn a_reset_takes_away_what_was_completed_and_not_polled() {
    let (a, b, wire) = pair();
    let kept = create_qp(&a.device, a.pd, &a.cq);
    let reset = create_qp(&a.device, a.pd, &a.cq);
    for qp in [kept, reset] {
        a.connect_qp(qp, b.qp.qpn(), B);
    }
    for (qp, wr_id) in [(kept, 1), (reset, 2), (kept, 3)] {
        a.device
            .modify_qp(
                Time::ZERO,
                qp,
                &QpAttr { qp_state: QpState::Err, ..QpAttr::default() },
                QpAttrMask::STATE,
            )
            .unwrap();
        a.device.post_recv(Time::ZERO, qp, &[RecvRequest { wr_id, sges: &[] }]).unwrap();
    }
    a.device.modify_qp(Time::ZERO, reset, &QpAttr::default(), QpAttrMask::STATE).unwrap();
    assert_eq!(a.cq.len(), 2);
    let left: Vec<_> = a.completions().iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(left, [(1, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)]);
    drop((b, wire));
}
