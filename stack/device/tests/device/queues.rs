//! Work queues: sizes, signalled and solicited completions, draining, messages of no bytes.

use super::srq::{many, post_to};
use super::*;
use urxe_device::cq::{ArmKind, AsyncEvent, CompletionChannel, QpEventType, Wake};
use urxe_device::qp::work_request::PostError;

fn init(end: &Host, cap: QpCap, sq_sig_all: bool) -> QpInit {
    QpInit { cap, sq_sig_all, ..end.init() }
}

/// Wakes no thread: the test looks for events.
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

/// Posts a work request with inline data.
fn post_inline(end: &Host, qp: QpHandle, op: SendOp, parts: &[&[u8]]) -> Result<(), PostError> {
    let payload = Payload::Inline(parts);
    let flags = SendFlags::SIGNALED | SendFlags::INLINE;
    end.post_request(qp, &SendRequest { flags, payload, ..request(op, &[]) })
}

#[test]
fn sizes_are_as_requested_and_zero_is_a_size_too() {
    let (a, b, _) = pair();
    for [max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data] in
        [[1, 3, 5, 7, 1000], [77, 0, 0, 0, 33], [0; 5]]
    {
        let cap = QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data };
        let qp = a.create(&init(&a, cap, false));
        assert_eq!(a.device.query_qp(qp).unwrap().cap, cap);
        a.connect_qp(qp, b.qp.qpn(), B);
        assert_eq!(a.device.query_qp(qp).unwrap().cap, cap, "connecting changes no size");
        // The queue takes exactly the requested number, with all pieces and all inline data.
        let sges = vec![a.sge(0, 1); cap.max_send_sge as usize];
        for _ in 0..cap.max_send_wr {
            a.post_on(qp, SendOp::Send, &sges);
        }
        let full = PostError::QueueFull { capacity: cap.max_send_wr };
        let posted = a.post_request(qp, &request(SendOp::Send, &[]));
        assert_refused!(posted, error if error == full, ENOMEM);
        for wr_id in 0..u64::from(cap.max_recv_wr) {
            a.post_recv_on(qp, wr_id, &[]);
        }
        let one_more = [RecvRequest { wr_id: 0, sges: &[] }];
        let full = PostError::QueueFull { capacity: cap.max_recv_wr };
        let posted = a.device.post_recv(Time::ZERO, qp, &one_more).map_err(|(_, error)| error);
        assert_refused!(posted, error if error == full, ENOMEM);
    }
    let cap = QpCap { max_send_wr: 1, max_inline_data: 33, ..QpCap::default() };
    let qp = a.create(&init(&a, cap, false));
    a.connect_qp(qp, b.qp.qpn(), B);
    let too_much = post_inline(&a, qp, SendOp::Send, &[&[0; 30], &[0; 4]]);
    assert_refused!(too_much, PostError::TooMuchInline { given: 34, allowed: 33 }, EINVAL);
    post_inline(&a, qp, SendOp::Send, &[&[0; 30], &[0; 3]]).unwrap();
}

#[test]
fn sq_sig_all_signals_every_send_and_nothing_else_does() {
    for all in [false, true] {
        let (a, b, wire) = pair();
        let cap = QpCap { max_send_wr: 8, max_send_sge: 1, ..QpCap::default() };
        let from = a.create(&init(&a, cap, all));
        let to = b.create_qp();
        connect(&a, from, &b, to);
        let sges = [a.sge(0, 100)];
        let write = SendOp::Write { remote: b.remote(0) };
        for flags in [SendFlags::empty(), SendFlags::SIGNALED, SendFlags::empty()] {
            a.post_request(from, &SendRequest { flags, ..request(write, &sges) }).unwrap();
        }
        run(&a, &b, &wire);
        assert_eq!(a.completions().len(), if all { 3 } else { 1 });
    }
}

#[test]
fn only_a_solicited_message_or_an_error_fires_a_queue_armed_for_solicited_ones() {
    let (a, b, wire, srq, pairs) = many(1, 8);
    let channel = Arc::new(CompletionChannel::new(Box::new(Silent)));
    let cq = b.device.create_cq(8, Some(Arc::clone(&channel)), 0).unwrap();
    let to = b.create(&QpInit { srq: Some(srq.clone()), ..qp::init(QpType::Rc, b.pd, &cq) });
    let from = a.create_qp();
    connect(&a, from, &b, to);
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
        // In a message of several packets, the last one has the bit.
        let sges = [a.sge(0, 3000)];
        a.post_request(from, &SendRequest { flags, ..request(op, &sges) }).unwrap();
        run(&a, &b, &wire);
        assert_eq!(cq.poll(&mut [Completion::default(); 4]), Ok(1));
        let event = channel.next_event();
        assert_eq!(event.is_some(), wakes, "{op:?} {flags:?}");
        cq.ack_events(event.is_some().into());
    }
    // A flushed receive is an error and therefore solicited.
    let own = b.create(&qp::init(QpType::Rc, b.pd, &cq));
    b.connect_qp(own, pairs[0].0.qpn(), A);
    b.post_recv_on(own, 1, &[]);
    assert!(!cq.arm(ArmKind::Solicited));
    b.go_to(own, QpState::Err);
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
        b.modify(to, &attr, QpAttrMask::STATE | more);
    };
    let _ = b.events();
    // One write has begun, one has not.
    b.post_on(to, SendOp::Write { remote: a.remote(0) }, &[b.sge(0, 500)]);
    b.transmit(&wire);
    to_state(QpState::Sqd, QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert!(b.device.query_qp(to).unwrap().sq_draining);
    b.post_on(to, SendOp::Write { remote: a.remote(1000) }, &[b.sge(0, 500)]);
    a.post_on(from, SendOp::Send, &[a.sge(0, 5)]);
    run(&a, &b, &wire);
    assert_eq!(b.events(), [AsyncEvent::Qp(QpEventType::SqDrained, to.qpn())]);
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
    // A piece of no bytes names no memory, so its key is not checked.
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
                // The receive may have no piece or an empty one as well.
                srq.post(&[RecvRequest { wr_id: 1, sges: &sges[..sges.len().min(2)] }]).unwrap();
            }
            a.post_on(pairs[0].0, op, sges);
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
    srq.post(&[RecvRequest { wr_id: 1, sges: &[] }]).unwrap();
    let inline =
        SendRequest { payload: Payload::Inline(&[]), ..request(SendOp::SendImm { imm: 9 }, &[]) };
    a.post_request(pairs[0].0, &inline).unwrap();
    run(&a, &b, &wire);
    assert_eq!(b.completions()[0].imm_data(), Some(9));
}

#[test]
fn more_reads_than_agreed_on_are_never_sent_and_never_served() {
    // This side keeps to max_rd_atomic: four of the ten posted READs.
    let (a, b, wire) = pair();
    for nr in 0..10 {
        a.post(SendOp::Read { remote: b.remote(nr * 8) }, &[a.sge(nr * 8, 8)]);
    }
    a.transmit(&wire);
    let runs = wire.take();
    assert_eq!(runs.iter().flat_map(PacketRun::segments).count(), 4);
    runs.into_iter().for_each(|run| wire.push(run));
    run(&a, &b, &wire);
    assert_eq!(a.completions().len(), 10);
    // A peer that exceeds max_dest_rd_atomic of the other end is refused.
    let (qp, one) = connect_another(&a, &b);
    b.go_to(one, QpState::Sqd);
    let narrow = QpAttr { max_dest_rd_atomic: 2, ..QpAttr::default() };
    b.modify(one, &narrow, QpAttrMask::MAX_DEST_RD_ATOMIC);
    for nr in 0..4 {
        a.post_on(qp, SendOp::Read { remote: b.remote(nr * 8) }, &[a.sge(nr * 8, 8)]);
    }
    run(&a, &b, &wire);
    let statuses = a.statuses();
    assert_eq!(
        statuses,
        [WcStatus::Success, WcStatus::Success, WcStatus::RemInvReqErr, WcStatus::WrFlushErr]
    );
    assert_eq!(b.events().last(), Some(&AsyncEvent::Qp(QpEventType::QpReqErr, one.qpn())));
}

#[test]
fn an_atomic_write_is_inline_even_without_room_for_inline_data() {
    let (a, b, wire) = pair();
    let cap = QpCap { max_send_wr: 2, max_recv_wr: 1, ..QpCap::default() };
    let [from, to] = [&a, &b].map(|end| end.create(&init(end, cap, true)));
    connect(&a, from, &b, to);
    let write = SendOp::AtomicWrite { remote: b.remote(8) };
    for word in [[1_u8; 8], [2; 8]] {
        post_inline(&a, from, write, &[&word]).unwrap();
    }
    run(&a, &b, &wire);
    assert!(a.completions().iter().all(|done| done.status == WcStatus::Success));
    assert_eq!(b.bytes(0, 24), [[0; 8], [2; 8], [0; 8]].concat());
}

#[test]
fn a_reset_removes_completions_that_were_not_polled() {
    let (a, b, _) = pair();
    let kept = a.create_qp();
    let reset = a.create_qp();
    for qp in [kept, reset] {
        a.connect_qp(qp, b.qp.qpn(), B);
    }
    for (qp, wr_id) in [(kept, 1), (reset, 2), (kept, 3)] {
        a.go_to(qp, QpState::Err);
        a.post_recv_on(qp, wr_id, &[]);
    }
    a.modify(reset, &QpAttr::default(), QpAttrMask::STATE);
    assert_eq!(a.cq.len(), 2);
    let left: Vec<_> = a.completions().iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(left, [(1, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)]);
}

#[test]
fn a_connected_queue_pair_refuses_an_address_handle() {
    let end = Host::new(A, 1);
    end.connect_qp(end.qp, Qpn::masked(7), B);
    let ah = end.ah(B.into());
    let to = to_qp(ah, Qpn::masked(7), urxe_wire::QKey(1));
    let refused = end.post_request(end.qp, &SendRequest { to, ..request(SendOp::Send, &[]) });
    assert_eq!(refused, Err(PostError::Destination { qp_type: QpType::Rc }));
}
