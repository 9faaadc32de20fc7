//! The requester of a connection whose peer is the test: limits, counters, and what it repeats.

use urxe_device::qp::attr::PathMtu;
use urxe_device::qp::work_request::PostError;
use urxe_test_support::packet::{atomic_response, read_response};
use urxe_wire::{Ext, NakCode, Opcode, RnrTimer, Syndrome};

use super::bursts::{Sender, number};
use super::peer::{PEER_QPN, Peer};
use super::*;

/// Returns a sender of one queue pair with this path MTU, whose device is `end`.
pub fn sender(end: Host, path_mtu: PathMtu) -> Sender {
    let qp = end.create_qp();
    let attr = QpAttr { path_mtu, ..qp::attributes(B.into(), number(0)) };
    end.bring_up((qp, QpType::Rc), &attr, QpState::Rts);
    Sender { end, qps: vec![qp], wire: Wire::default() }
}

fn opcodes(sent: &[(Opcode, u32, Option<Syndrome>)]) -> Vec<(Opcode, u32)> {
    sent.iter().map(|&(opcode, n, _)| (opcode, n)).collect()
}

/// Moves a queue pair to SQD, changes an attribute, and moves it back to RTS.
fn change_drained(peer: &Peer, attr: QpAttr, mask: QpAttrMask) {
    peer.modify(state(QpState::Sqd), QpAttrMask::STATE);
    peer.modify(attr, mask);
    peer.modify(state(QpState::Rts), QpAttrMask::STATE);
}

#[test]
fn a_burst_that_ends_within_a_message_requests_its_ack_there() {
    let sender = sender(Host::new(A, 1), PathMtu::Mtu2048);
    sender.post(0, SendOp::Send, 40 * 2048);
    // The window has room for this one behind each burst.
    sender.post(0, SendOp::Send, 1);
    let asks: Vec<bool> = sender.runs().concat().iter().map(|(_, asks)| *asks).collect();
    let places: Vec<usize> = (0..asks.len()).filter(|&place| asks[place]).collect();
    assert_eq!((asks.len(), places), (41, vec![28, 40]));
}

#[test]
fn at_most_65536_psns_are_unacknowledged_unless_one_read_has_more() {
    const MTU: u32 = 256;
    let host = || {
        let options = HostOptions { memory: 70_000 * MTU as usize, ..HostOptions::default() };
        let config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
        Host::with(A.into(), DeviceConfig { read_budget: 1 << 30, ..config }, options)
    };
    // The packets of a SEND and of two READs, and the packets that are sent.
    let cases = [
        ([0, 70_000, 1], vec![Opcode::RcReadRequest]),
        ([0, 40_000, 25_536], vec![Opcode::RcReadRequest; 2]),
        ([0, 40_000, 25_537], vec![Opcode::RcReadRequest]),
        ([1, 65_536, 1], vec![Opcode::RcSendOnly]),
        ([1, 65_535, 1], vec![Opcode::RcSendOnly, Opcode::RcReadRequest]),
    ];
    for (packets, expected) in cases {
        let sender = sender(host(), PathMtu::Mtu256);
        let read = SendOp::Read { remote: sender.end.remote(0) };
        for (op, packets) in [SendOp::Send, read, read].into_iter().zip(packets) {
            if packets > 0 {
                sender.post(0, op, packets * MTU);
            }
        }
        let runs = sender.take();
        let sent: Vec<_> =
            runs.iter().flat_map(PacketRun::packets).map(|packet| packet.opcode()).collect();
        assert_eq!(sent, expected, "{packets:?}");
    }
}

#[test]
fn a_write_and_a_read_count_once_and_a_send_does_not() {
    let peer = Peer::new();
    let (end, remote) = (&peer.end, peer.end.remote(0));
    let count = |op, length| {
        let before = end.counter(Counter::RdmaSends);
        end.post(op, &[end.sge(0, length)]);
        peer.sent();
        end.counter(Counter::RdmaSends) - before
    };
    assert_eq!(count(SendOp::Send, 3000), 0);
    assert_eq!(count(SendOp::Write { remote }, 3000), 1);
    assert_eq!(count(SendOp::WriteImm { remote, imm: 1 }, 8), 1);
    assert_eq!(count(SendOp::Read { remote }, 3000), 1);
}

/// RFC 6298, 3 (Karn's algorithm).
#[test]
fn the_ack_of_a_repeated_packet_measures_no_round_trip() {
    // Returns the time from the sending of the second packet to its first deadline.
    let deadline = |repeats: bool| {
        let peer = Peer::new();
        let send = || peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
        send();
        assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, 0)]);
        // The next packet may measure again.
        peer.end.clock.advance(100_000);
        if repeats {
            peer.answer(0, Syndrome::Nak(NakCode::PsnSequence));
            assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, 0)]);
        }
        peer.end.clock.advance(100_000);
        peer.answer(0, Syndrome::ACK);
        send();
        assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, 1)]);
        peer.end.device.next_deadline().unwrap().since_ns(peer.end.clock.now())
    };
    // After a measurement a probe precedes the timeout.
    let (measured, unmeasured) = (deadline(false), deadline(true));
    assert!(measured < 10_000_000 && unmeasured > 20_000_000, "{measured} {unmeasured}");
}

#[test]
fn a_probe_repeats_the_last_of_several_messages() {
    let peer = Peer::new();
    let send = || peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    for n in 0..20 {
        send();
        assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, n)]);
        peer.end.clock.advance(50_000);
        peer.answer(n, Syndrome::ACK);
    }
    send();
    send();
    assert_eq!(peer.sent().len(), 2);
    while peer.end.counter(Counter::TailProbes) == 0 {
        peer.end.clock.set(peer.end.device.next_deadline().unwrap());
        peer.end.device.handle_timeouts(peer.end.clock.now());
    }
    assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, 21)]);
    peer.answer(21, Syndrome::ACK);
    assert_eq!(peer.end.statuses(), [WcStatus::Success; 22]);
    assert_eq!(peer.end.device.bytes_in_flight(), (0, 0));
}

#[test]
fn a_changed_rnr_retry_counts_from_the_next_rnr_nak() {
    let peer = Peer::new();
    let attr = QpAttr { rnr_retry: 1, ..QpAttr::default() };
    change_drained(&peer, attr, QpAttrMask::RNR_RETRY);
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    assert_eq!(peer.sent().len(), 1);
    let timer = RnrTimer::new(1).unwrap();
    peer.answer(0, Syndrome::RnrNak(timer));
    peer.end.clock.advance(timer.duration_ns());
    peer.end.device.handle_timeouts(peer.end.clock.now());
    assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, 0)]);
    peer.answer(0, Syndrome::RnrNak(timer));
    assert_eq!(peer.end.statuses(), [WcStatus::RnrRetryExcErr]);
}

#[test]
fn a_read_without_read_depth_is_refused_but_flushed_in_the_error_state() {
    let peer = Peer::new();
    change_drained(&peer, QpAttr::default(), QpAttrMask::MAX_QP_RD_ATOMIC);
    let sges = [peer.end.sge(0, 8)];
    let read = request(SendOp::Read { remote: peer.end.remote(0) }, &sges);
    assert_refused!(peer.end.post_request(peer.end.qp, &read), PostError::NoReadDepth, EINVAL);
    peer.modify(state(QpState::Err), QpAttrMask::STATE);
    assert_eq!(peer.end.post_request(peer.end.qp, &read), Ok(()));
    assert_eq!(peer.end.statuses(), [WcStatus::WrFlushErr]);
}

#[test]
fn a_repeated_rnr_nak_counts_once() {
    let peer = Peer::new();
    let attr = QpAttr { rnr_retry: 1, ..QpAttr::default() };
    change_drained(&peer, attr, QpAttrMask::RNR_RETRY);
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    assert_eq!(peer.sent().len(), 1);
    for _ in 0..5 {
        peer.answer(0, Syndrome::RnrNak(RnrTimer::LONGEST));
    }
    assert_eq!(peer.state(), QpState::Rts);
    peer.answer(0, Syndrome::ACK);
    assert_eq!(peer.end.statuses(), [WcStatus::Success]);
}

#[test]
fn an_ack_of_the_next_psn_without_requests_is_no_duplicate() {
    let peer = Peer::new();
    peer.answer(0, Syndrome::ACK);
    assert_eq!(peer.end.counter(Counter::DropGhostAck), 1);
    peer.answer(u32::MAX, Syndrome::ACK);
    assert_eq!(peer.end.counter(Counter::DropDuplicate), 1);
}

#[test]
fn each_response_returns_its_credit() {
    let peer = Peer::new();
    peer.end.post(SendOp::Read { remote: peer.end.remote(0) }, &[peer.end.sge(0, 3 * 1024)]);
    assert_eq!(peer.sent().len(), 1);
    let packet = 1024 + 64;
    assert_eq!(peer.end.device.bytes_in_flight(), (0, 3 * packet));
    let opcodes =
        [Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle, Opcode::RcReadResponseLast];
    for (opcode, n) in opcodes.into_iter().zip(0..) {
        peer.deliver(read_response(opcode, qp::FIRST_PSN.add(n).value(), 1, &[7; 1024]));
        assert_eq!(peer.end.device.bytes_in_flight(), (0, (2 - u64::from(n)) * packet));
    }
    assert_eq!(peer.end.statuses(), [WcStatus::Success]);
}

#[test]
fn an_atomic_response_is_no_answer_to_a_read_of_0_bytes() {
    let peer = Peer::new();
    peer.end.post(SendOp::Read { remote: peer.end.remote(0) }, &[peer.end.sge(0, 0)]);
    assert_eq!(peer.sent().len(), 1);
    peer.deliver(atomic_response(qp::FIRST_PSN.value(), 1, 5));
    assert_eq!(peer.end.statuses(), [WcStatus::BadRespErr]);
}

#[test]
fn progress_gives_the_next_missing_response_the_whole_time() {
    /// The time in which responses may overtake others, before a round trip was measured.
    const REORDERING_NS: u64 = 100_000;
    let peer = Peer::new();
    for _ in 0..2 {
        peer.end.post(SendOp::Read { remote: peer.end.remote(0) }, &[peer.end.sge(0, 8)]);
        peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    }
    assert_eq!(peer.sent().len(), 4);
    let wait = || peer.end.device.next_deadline().unwrap().since_ns(peer.end.clock.now());
    peer.answer(1, Syndrome::ACK);
    peer.answer(3, Syndrome::ACK);
    assert_eq!(wait(), REORDERING_NS);
    peer.end.clock.advance(REORDERING_NS / 2);
    let opcode = Opcode::RcReadResponseOnly;
    peer.deliver(read_response(opcode, qp::FIRST_PSN.value(), 1, &[7; 8]));
    assert_eq!(peer.end.statuses(), [WcStatus::Success; 2]);
    peer.end.device.handle_timeouts(peer.end.clock.now().plus_ns(REORDERING_NS / 2));
    assert_eq!(peer.sent().len(), 0, "the second READ is not missing yet");
    peer.end.device.handle_timeouts(peer.end.clock.now().plus_ns(REORDERING_NS));
    assert_eq!(opcodes(&peer.sent())[0], (Opcode::RcReadRequest, 2));
}

#[test]
fn a_read_is_requested_in_parts_whose_responses_fill_runs() {
    // The budget of 96 KiB holds 90 responses. 62 fill a run: 62 and 3 with an AETH.
    for (max_rd_atomic, packets) in [(1, 65), (2, 45), (4, 45)] {
        let peer = Peer::new();
        let attr = QpAttr { max_rd_atomic, ..QpAttr::default() };
        change_drained(&peer, attr, QpAttrMask::MAX_QP_RD_ATOMIC);
        peer.end.post(SendOp::Read { remote: peer.end.remote(0) }, &[peer.end.sge(0, 1 << 20)]);
        peer.end.transmit(peer.wire());
        let runs = peer.wire().take();
        let (_, first) = Packet::sent(&runs[0]).next().unwrap();
        let Ext::Reth(reth) = first.ext else { panic!("{first:?}") };
        assert_eq!(reth.dma_len, packets * 1024, "max_rd_atomic {max_rd_atomic}");
    }
}

#[test]
fn a_process_that_did_not_run_uses_up_no_retries() {
    let peer = Peer::new();
    for n in 0..3 {
        peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
        assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, n)]);
        // The process is stopped for a minute. The response arrives meanwhile, and is read after
        // the timers.
        peer.end.clock.advance(60_000_000_000);
        peer.end.device.handle_timeouts(peer.end.clock.now());
        assert_eq!(opcodes(&peer.sent()), [(Opcode::RcSendOnly, n)], "sent again");
        peer.answer(n, Syndrome::ACK);
        assert_eq!(peer.end.statuses(), [WcStatus::Success]);
    }
    // A peer that does not respond is given up, although each timer is late.
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    let mut sent = 0;
    while let Some(deadline) = peer.end.device.next_deadline() {
        sent += peer.sent().len();
        peer.end.clock.set(deadline.plus_ns(1_000_000_000));
        peer.end.device.handle_timeouts(peer.end.clock.now());
    }
    assert_eq!(peer.end.statuses(), [WcStatus::RetryExcErr]);
    assert!((8..100).contains(&sent), "{sent} packets");
}

#[test]
fn a_reset_stops_the_timers() {
    let peer = Peer::new();
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    assert_eq!(peer.sent().len(), 1);
    peer.modify(state(QpState::Reset), QpAttrMask::STATE);
    let attr = qp::attributes(B.into(), PEER_QPN);
    peer.end.bring_up((peer.end.qp, QpType::Rc), &attr, QpState::Rtr);
    while let Some(deadline) = peer.end.device.next_deadline() {
        peer.end.clock.set(deadline);
        peer.end.device.handle_timeouts(deadline);
    }
    assert_eq!(peer.state(), QpState::Rtr);
    for counter in [Counter::CompleterRetryErr, Counter::RetryExceededErr, Counter::TailProbes] {
        assert_eq!(peer.end.counter(counter), 0, "{}", counter.name());
    }
}

#[test]
fn an_rnr_wait_is_over_when_its_time_has_passed() {
    let peer = Peer::new();
    let timer = RnrTimer::new(20).unwrap();
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    assert_eq!(peer.sent().len(), 1);
    peer.answer(0, Syndrome::RnrNak(timer));
    // The post gives the queue pair a turn before its timer does.
    for (ns, sent) in [(timer.duration_ns() - 1, 0), (1, 3)] {
        peer.end.clock.advance(ns);
        peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
        assert_eq!(peer.sent().len(), sent);
    }
}
