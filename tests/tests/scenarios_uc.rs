//! Unreliable connections: each message arrives whole or not at all, the sender gets no report, and
//! every drop has a counter.

use urxe_stack::cq::{AsyncEventType, WcOpcode, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::work_request::{PostError, SendFlags, SendOp, Sge};
use urxe_test_support::lab::{
    DESTINATION, Lab, MILLISECOND, MTU, Packet, Setup, TARGET, no_lkey, part, remote, reth,
};
use urxe_wire::{Ext, ImmDt, Opcode, Reth, Rkey};

use Opcode::{
    UcSendFirst, UcSendLast, UcSendLastImm, UcSendMiddle, UcSendOnly, UcSendOnlyImm, UcWriteFirst,
    UcWriteLast, UcWriteLastImm, UcWriteMiddle, UcWriteOnly, UcWriteOnlyImm,
};
use WcStatus::{LocProtErr, LocQpOpErr, Success, WrFlushErr};

fn lab() -> Lab {
    Lab::new(Setup { qp_type: QpType::Uc, access: Access::REMOTE_WRITE, ..Setup::default() })
}

fn send(psn: u32, payload: &[u8]) -> Packet {
    part(UcSendOnly, psn, payload)
}

fn write(opcode: Opcode, psn: u32, ext: Ext, payload: &[u8]) -> Packet {
    Packet { ext, ..part(opcode, psn, payload) }
}

/// IBTA 9.8.2.1.
#[test]
fn messages_leave_complete_at_once_and_ask_for_nothing() {
    let lab = lab();
    lab.post_send(1, 2 * MTU + 5);
    lab.post(2, SendOp::SendImm { imm: 7 }, 4);
    let source = lab.source(2 * MTU + 5);
    lab.expect([
        part(UcSendFirst, 500, &source[..MTU]),
        part(UcSendMiddle, 501, &source[MTU..2 * MTU]),
        part(UcSendLast, 502, &source[2 * MTU..]),
        Packet { ext: Ext::Imm(ImmDt { data: 7 }), ..part(UcSendOnlyImm, 503, &source[..4]) },
    ]);
    lab.expect_sends([(1, Success), (2, Success)]);
    lab.wait(5000 * MILLISECOND);
    lab.expect([]);
}

#[test]
fn writes_carry_their_address_first_and_their_immediate_last() {
    let lab = lab();
    lab.post(1, SendOp::WriteImm { remote: remote(), imm: 9 }, 2 * MTU + 1);
    lab.post(2, SendOp::WriteImm { remote: remote(), imm: 8 }, 3);
    lab.post(3, SendOp::Write { remote: remote() }, 0);
    let sent: Vec<_> =
        lab.sent().iter().map(|packet| (packet.opcode, packet.psn, packet.ext)).collect();
    let to = |len: u32| Reth { va: 0x1000, rkey: Rkey(0x2000), dma_len: len };
    assert_eq!(
        sent,
        [
            (UcWriteFirst, 500, Ext::Reth(to(2 * MTU as u32 + 1))),
            (UcWriteMiddle, 501, Ext::None),
            (UcWriteLastImm, 502, Ext::Imm(ImmDt { data: 9 })),
            (UcWriteOnlyImm, 503, Ext::RethImm(to(3), ImmDt { data: 8 })),
            (UcWriteOnly, 504, Ext::Reth(to(0))),
        ]
    );
    lab.expect_sends([(1, Success), (2, Success), (3, Success)]);
    assert_eq!(lab.counter(Counter::RdmaSends), 3);
}

#[test]
fn operations_of_another_service_are_refused_at_posting() {
    let lab = lab();
    let sge = lab.sge(DESTINATION, 8);
    for op in [
        SendOp::Read { remote: remote() },
        SendOp::FetchAdd { remote: remote(), add: 1 },
        SendOp::CompareSwap { remote: remote(), compare: 0, swap: 1 },
        SendOp::SendInvalidate { rkey: Rkey(1) },
    ] {
        let refused = lab.post_request(1, op, SendFlags::SIGNALED, &[sge]);
        assert_eq!(refused, Err(PostError::Unsupported { qp_type: QpType::Uc }), "{op:?}");
    }
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let lab = lab();
    lab.post_recv(1, 600);
    lab.post_recv(2, 600);
    lab.deliver(part(UcSendFirst, 100, &[1; MTU]));
    lab.deliver(part(UcSendMiddle, 101, &[2; MTU]));
    lab.expect_recvs([]);
    let last = part(UcSendLastImm, 102, &[3; 5]);
    lab.deliver(Packet { ext: Ext::Imm(ImmDt { data: 0xabcd }), solicited: true, ..last });
    let recvs = lab.recvs();
    assert_eq!((recvs.len(), recvs[0].wr_id, recvs[0].status), (1, 1, Success));
    assert_eq!((recvs[0].opcode, recvs[0].imm_data()), (WcOpcode::Recv, Some(0xabcd)));
    assert_eq!(recvs[0].byte_len as usize, 2 * MTU + 5);
    assert_eq!(
        lab.memory(DESTINATION, 2 * MTU + 5),
        [vec![1; MTU], vec![2; MTU], vec![3; 5]].concat()
    );
    lab.deliver(send(103, b""));
    assert_eq!(lab.recvs()[0].byte_len, 0);
    lab.expect([]);
}

#[test]
fn writes_land_and_the_immediate_takes_a_receive() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(write(UcWriteFirst, 100, reth(TARGET, rkey, 2 * MTU + 1), &[1; MTU]));
    lab.deliver(part(UcWriteMiddle, 101, &[2; MTU]));
    lab.deliver(part(UcWriteLast, 102, &[3]));
    assert_eq!(lab.memory(TARGET, 2 * MTU + 1), [vec![1; MTU], vec![2; MTU], vec![3]].concat());
    lab.expect_recvs([]);
    lab.post_recv(5, 0);
    let ext = Ext::RethImm(Reth { va: TARGET, rkey, dma_len: 4 }, ImmDt { data: 6 });
    lab.deliver(write(UcWriteOnlyImm, 103, ext, b"more"));
    let recvs = lab.recvs();
    assert_eq!((recvs[0].wr_id, recvs[0].opcode), (5, WcOpcode::RecvRdmaWithImm));
    assert_eq!((recvs[0].imm_data(), recvs[0].byte_len), (Some(6), 4));
    assert_eq!(lab.memory(TARGET, 4), b"more");
    assert_eq!(lab.counter(Counter::RdmaRecvs), 2);
}

/// IBTA 9.8.2.2.
#[test]
fn a_gap_drops_its_message_whole_and_keeps_the_receive_for_the_next() {
    let lab = lab();
    lab.post_recv(1, 600);
    lab.deliver(part(UcSendFirst, 100, &[1; MTU]));
    // 101 is lost.
    lab.deliver(part(UcSendMiddle, 102, &[2; MTU]));
    lab.deliver(part(UcSendLast, 103, &[3; 5]));
    lab.expect_recvs([]);
    assert_eq!(lab.counter(Counter::OutOfSeqRequest), 1);
    assert_eq!(lab.counter(Counter::DropIncomplete), 2);
    lab.deliver(send(104, b"whole"));
    lab.expect_recvs([(1, Success)]);
    assert_eq!(lab.memory(DESTINATION, 5), b"whole");
    assert_eq!(lab.state(), QpState::Rts);
    lab.expect([]);
}

#[test]
fn a_lost_end_makes_room_for_the_next_message() {
    let lab = lab();
    lab.post_recv(1, 600);
    lab.deliver(part(UcSendFirst, 100, &[1; MTU]));
    // 101, the last packet, is lost; the next message begins with a gap.
    lab.deliver(part(UcSendFirst, 102, &[4; MTU]));
    lab.deliver(part(UcSendLast, 103, &[5; 2]));
    let recvs = lab.recvs();
    assert_eq!((recvs.len(), recvs[0].byte_len as usize), (1, MTU + 2));
    assert_eq!(lab.memory(DESTINATION, MTU + 2), [vec![4; MTU], vec![5; 2]].concat());
}

#[test]
fn a_message_that_the_peer_broke_off_gives_way_to_the_next() {
    let lab = lab();
    lab.post_recv(1, 600);
    lab.deliver(part(UcSendFirst, 100, &[1; MTU]));
    lab.deliver(send(101, b"new"));
    lab.expect_recvs([(1, Success)]);
    assert_eq!(lab.memory(DESTINATION, 3), b"new");
}

#[test]
fn a_copy_or_a_straggler_is_never_delivered() {
    let lab = lab();
    for wr_id in 1..=4 {
        lab.post_recv(wr_id, 64);
    }
    for psn in [100, 100, 102, 101, 102, 103] {
        lab.deliver(send(psn, &psn.to_be_bytes()));
    }
    lab.expect_recvs([(1, Success), (2, Success), (3, Success)]);
    assert_eq!(lab.counter(Counter::DropDuplicate), 3);
    assert_eq!(lab.counter(Counter::DuplicateRequest), 3);
}

#[test]
fn a_message_after_a_gap_of_half_the_psns_is_received() {
    let lab = lab();
    lab.post_recv(1, 64);
    // More than half of the PSN space was lost.
    lab.deliver(send((100 + (1 << 23) + 5) & 0xff_ffff, b"back"));
    lab.expect_recvs([(1, Success)]);
}

#[test]
fn without_a_receive_a_message_is_lost_and_only_that() {
    let lab = lab();
    lab.deliver(part(UcSendFirst, 100, &[1; MTU]));
    lab.post_recv(1, 600);
    // An incomplete message has no effect.
    lab.deliver(part(UcSendLast, 101, &[1; 5]));
    lab.expect_recvs([]);
    assert_eq!(lab.counter(Counter::DropNoReceive), 1);
    assert_eq!(lab.counter(Counter::DropIncomplete), 1);
    lab.deliver(send(102, b"next"));
    lab.expect_recvs([(1, Success)]);
    assert_eq!(lab.events(), []);
}

#[test]
fn a_message_that_does_not_fit_is_lost_and_the_receive_stays() {
    let lab = lab();
    lab.post_recv(1, MTU + 4);
    lab.deliver(part(UcSendFirst, 100, &[1; MTU]));
    lab.deliver(part(UcSendLast, 101, &[1; 5]));
    lab.expect_recvs([]);
    assert_eq!(lab.counter(Counter::DropTooLong), 1);
    lab.deliver(send(102, b"fits"));
    lab.expect_recvs([(1, Success)]);
}

#[test]
fn a_write_without_the_right_writes_nothing() {
    let lab = lab();
    let (rkey, before) = (lab.mr.rkey, lab.memory(TARGET, 64));
    let local = lab.mr_with(Access::LOCAL_WRITE).rkey;
    let elsewhere = lab.mr_of_another_pd().rkey;
    for (psn, va, rkey, len) in [
        (100, TARGET, Rkey(rkey.value() ^ 0x100), 4),
        (101, TARGET, local, 4),
        (102, TARGET, elsewhere, 4),
        (103, 0xffff_ffff_0000, rkey, 4),
    ] {
        lab.deliver(write(UcWriteOnly, psn, reth(va, rkey, len), &[9; 4]));
    }
    // The access check covers the whole message before its first byte is written.
    lab.deliver(write(UcWriteFirst, 104, reth(TARGET, rkey, 1 << 20), &[9; MTU]));
    assert_eq!(lab.counter(Counter::DropNoRight), 5);
    assert_eq!(lab.memory(TARGET, 64), before);
    assert_eq!(lab.state(), QpState::Rts);
    let closed =
        Lab::new(Setup { qp_type: QpType::Uc, access: Access::empty(), ..Setup::default() });
    closed.deliver(write(UcWriteOnly, 100, reth(TARGET, closed.mr.rkey, 4), &[9; 4]));
    assert_eq!(closed.counter(Counter::DropNoRight), 1);
}

#[test]
fn lengths_that_contradict_each_other_drop_the_message() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.post_recv(1, 600);
    for (name, packet) in [
        ("FIRST shorter than the path MTU", part(UcSendFirst, 100, &[1; MTU - 4])),
        ("ONLY longer than it", part(UcSendOnly, 101, &[1; MTU + 4])),
        ("WRITE longer than its RETH", write(UcWriteOnly, 102, reth(TARGET, rkey, 4), &[1; 8])),
        ("WRITE shorter than its RETH", write(UcWriteOnly, 103, reth(TARGET, rkey, 12), &[1; 8])),
    ] {
        let before = lab.counter(Counter::DropBadLength);
        lab.deliver(packet);
        assert_eq!(lab.counter(Counter::DropBadLength), before + 1, "{name}");
    }
    lab.deliver(send(104, b"fine"));
    lab.expect_recvs([(1, Success)]);
}

/// IBTA 9.9.3.
#[test]
fn a_receive_that_cannot_be_used_fails_the_queue_pair() {
    let lab = lab();
    lab.post_recv_sge(1, Sge { addr: DESTINATION, length: 64, lkey: no_lkey() });
    lab.post_recv(2, 64);
    lab.deliver(send(100, b"x"));
    lab.expect_recvs([(1, LocProtErr), (2, WrFlushErr)]);
    assert_eq!(lab.state(), QpState::Err);
    assert_eq!(lab.events(), [AsyncEventType::QpFatal]);
}

/// IBTA 9.9.2.1 and 10.3.1.6.
#[test]
fn a_send_that_fails_stops_sending_and_rts_starts_it_again() {
    let lab = lab();
    lab.post_recv(9, 64);
    lab.post_send(1, 4);
    let bad = Sge { addr: 0, length: 3 * MTU as u32, lkey: no_lkey() };
    lab.post_request(2, SendOp::Send, SendFlags::empty(), &[bad]).expect("taken");
    lab.post_send(3, 4);
    assert_eq!(lab.sent().len(), 1);
    lab.expect_sends([(1, Success), (2, LocProtErr), (3, WrFlushErr)]);
    assert_eq!(lab.state(), QpState::Sqe);
    // New requests are flushed, and messages are still received.
    lab.post_send(4, 4);
    lab.expect_sends([(4, WrFlushErr)]);
    lab.deliver(send(100, b"still here"));
    lab.expect_recvs([(9, Success)]);
    let rts = QpAttr { qp_state: QpState::Rts, cur_qp_state: QpState::Sqe, ..QpAttr::default() };
    lab.modify(&rts, QpAttrMask::STATE | QpAttrMask::CUR_STATE);
    lab.post_send(5, 4);
    let sent = lab.sent();
    assert_eq!((sent.len(), sent[0].psn), (1, 501), "PSNs go on");
    lab.expect_sends([(5, Success)]);
    assert_eq!(lab.events(), []);
}

#[test]
fn a_long_message_leaves_in_bursts_that_a_default_receive_buffer_holds() {
    let lab = lab();
    let lists: Vec<Sge> = (0..4).map(|_| lab.sge(0, 0xc000)).collect();
    for wr_id in 0..8 {
        lab.post_sges(wr_id, SendOp::Send, &lists);
    }
    let total = 8 * 4 * 0xc000 / MTU;
    let first = lab.sent().len();
    assert!(first * MTU <= 128 << 10, "{first} packets at once");
    let (mut sent, mut waits) = (first, 0);
    while sent < total {
        let next = lab.device.next_deadline().expect("it wants to go on");
        lab.wait(next.since_ns(lab.clock.now()));
        let burst = lab.sent().len();
        assert!((1..=(128 << 10) / MTU).contains(&burst), "{burst} packets at once");
        sent += burst;
        waits += 1;
    }
    assert!(waits < total / 100, "single packets instead of bursts: {waits} waits");
    // 10 Gbit/s.
    let at_the_rate = (total * (MTU + 16)) as u64 * 8 / 10;
    assert!(
        lab.clock.now().as_ns().abs_diff(at_the_rate) < at_the_rate / 5,
        "{} ns",
        lab.clock.now().as_ns()
    );
}

#[test]
fn draining_finishes_the_message_under_way_and_begins_none() {
    let lab = lab();
    let lists: Vec<Sge> = (0..4).map(|_| lab.sge(0, 0xc000)).collect();
    lab.post_sges(1, SendOp::Send, &lists);
    lab.post_send(2, 4);
    let first = lab.sent().len();
    let notify = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    lab.modify(&notify, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert_eq!(lab.events(), []);
    lab.wait(MILLISECOND);
    assert_eq!(first + lab.sent().len(), 4 * 0xc000 / MTU);
    lab.expect_sends([(1, Success)]);
    assert_eq!(lab.events(), [AsyncEventType::SqDrained]);
    lab.go_to(QpState::Rts);
    lab.flush();
    lab.expect_sends([(2, Success)]);
}

#[test]
fn keys_come_and_go_in_the_order_of_the_send_queue() {
    let lab = lab();
    let memory = lab.device.memory();
    let key = memory.alloc_fast(lab.pd, 4).expect("there are many");
    lab.post_send(1, 4);
    lab.post_sges(2, SendOp::LocalInv { rkey: key }, &[]);
    lab.post_send(3, 4);
    assert_eq!(lab.sent().len(), 2, "the invalidation sends no packet and stops no request");
    // A free region stays free without an error.
    lab.expect_sends([(1, Success), (2, Success), (3, Success)]);
    // A request that cannot be executed stops the send queue only.
    lab.post_sges(4, SendOp::LocalInv { rkey: Rkey(7) }, &[]);
    lab.post_send(5, 4);
    assert_eq!(lab.sent(), []);
    lab.expect_sends([(4, LocQpOpErr), (5, WrFlushErr)]);
    assert_eq!(lab.state(), QpState::Sqe);
}
