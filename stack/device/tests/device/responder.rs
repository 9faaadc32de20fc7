//! The responder of a connection whose peer is the test: bounds of PSNs, kept responses, and the
//! state after a reset.

use urxe_device::cq::QpEventType;
use urxe_test_support::packet::{read_request, send_only};
use urxe_wire::{NakCode, Opcode, Syndrome};

use super::peer::{PEER_QPN, Peer};
use super::*;

/// The most packets between the expected PSN and one that the responder answers.
const AHEAD: u32 = 1 << 16;

/// Delivers a WRITE with a PSN that is `n` after the first, and returns the answers.
fn write(peer: &Peer, n: u32) -> Vec<(Opcode, u32, Option<Syndrome>)> {
    peer.receive(&[(Opcode::RcWriteOnly, n, peer.write(0), &[1; 4])]);
    peer.sent()
}

/// Delivers a fetch and add, and returns whether it is answered.
fn is_answered(peer: &Peer, n: u32) -> bool {
    peer.receive(&[(Opcode::RcFetchAdd, n, peer.fetch_add(), &[])]);
    !peer.sent().is_empty()
}

/// Moves the queue pair to RESET and connects it again.
fn reset(peer: &Peer) {
    peer.modify(state(QpState::Reset), QpAttrMask::STATE);
    peer.end.connect_qp(peer.end.qp, PEER_QPN, B);
}

#[test]
fn a_request_65536_packets_ahead_causes_a_nak_and_one_more_ahead_none() {
    let peer = Peer::new();
    assert_eq!(write(&peer, AHEAD + 1), []);
    let nak = Some(Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(write(&peer, AHEAD), [(Opcode::RcAcknowledge, 0, nak)]);
}

#[test]
fn a_duplicate_65536_packets_ago_is_acknowledged_and_an_older_one_dropped() {
    let peer = Peer::new();
    let acknowledged = [(Opcode::RcAcknowledge, 0, Some(Syndrome::ACK))];
    assert_eq!(write(&peer, 0), acknowledged);
    assert_eq!(write(&peer, 1_u32.wrapping_sub(AHEAD)), acknowledged);
    assert_eq!(peer.end.counter(Counter::DropDuplicate), 0);
    assert_eq!(write(&peer, 0_u32.wrapping_sub(AHEAD)), []);
    assert_eq!(peer.end.counter(Counter::DropDuplicate), 1);
}

#[test]
fn a_lower_depth_keeps_the_newest_responses() {
    let answered = |depth| {
        let peer = Peer::new();
        assert!((0..3).all(|n| is_answered(&peer, n)));
        peer.modify(state(QpState::Sqd), QpAttrMask::STATE);
        let attr = QpAttr { max_dest_rd_atomic: depth, ..QpAttr::default() };
        peer.modify(attr, QpAttrMask::MAX_DEST_RD_ATOMIC);
        [0, 1, 2].map(|n| is_answered(&peer, n))
    };
    assert_eq!(answered(3), [true, true, true]);
    assert_eq!(answered(2), [false, true, true]);
    assert_eq!(answered(1), [false, false, true]);
}

#[test]
fn a_read_whose_memory_is_gone_ends_the_connection() {
    let peer = Peer::new();
    peer.receive(&[(Opcode::RcReadRequest, 0, peer.read(0), &[])]);
    assert_eq!(peer.state(), QpState::Rts);
    peer.end.device.memory().deregister(peer.end.mr.lkey).unwrap();
    let nak = Some(Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(peer.sent(), [(Opcode::RcAcknowledge, 0, nak)]);
    assert_eq!((peer.events(), peer.state()), (vec![QpEventType::QpAccessErr], QpState::Err));
}

#[test]
fn a_reset_forgets_receives_and_responses() {
    let peer = Peer::new();
    peer.end.post_recv(9, &[peer.end.sge(0, 8)]);
    peer.receive(&[(Opcode::RcReadRequest, 0, peer.read(0), &[])]);
    assert!(is_answered(&peer, 1));
    peer.receive(&[(Opcode::RcReadRequest, 2, peer.read(0), &[])]);
    reset(&peer);
    assert_eq!(peer.sent(), []);
    // The receive from before the reset would take it.
    peer.deliver(send_only(qp::FIRST_PSN.value(), &[1; 8]));
    assert!(matches!(peer.sent()[..], [(Opcode::RcAcknowledge, 0, Some(Syndrome::RnrNak(_)))]));
    assert_eq!(peer.end.statuses(), []);
}

const ACK: Option<Syndrome> = Some(Syndrome::ACK);

/// Delivers a READ request of `len` bytes that starts at packet `at` of the region.
fn read(peer: &Peer, n: u32, at: u64, len: usize) {
    let va = peer.end.mr.iova + at * 1024;
    peer.deliver(read_request(qp::FIRST_PSN.add(n).value(), va, peer.end.mr.rkey, len));
}

#[test]
fn a_failed_response_stops_the_requests_of_the_same_call() {
    let peer = Peer::new();
    let invalidated = peer.end.register(peer.end.pd, Access::LOCAL_WRITE | REMOTE);
    let psn = qp::FIRST_PSN.value();
    peer.deliver(read_request(psn, invalidated.iova, invalidated.rkey, 8));
    // A packet as long as the NAK, so that it would find room behind it.
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 4)]);
    peer.end.device.memory().deregister(invalidated.lkey).unwrap();
    let nak = Some(Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(peer.sent(), [(Opcode::RcAcknowledge, 0, nak)]);
    assert_eq!(peer.end.statuses(), [WcStatus::WrFlushErr]);
}

#[test]
fn responses_with_data_go_before_requests_and_a_lone_ack_behind_them() {
    let peer = Peer::new();
    read(&peer, 0, 0, 8);
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    let response = (Opcode::RcReadResponseOnly, 0, ACK);
    assert_eq!(peer.sent(), [response, (Opcode::RcSendOnly, 0, None)]);
    peer.receive(&[(Opcode::RcWriteOnly, 1, peer.write(0), &[1; 4])]);
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 1, None), (Opcode::RcAcknowledge, 1, ACK)]);
}

#[test]
fn twice_the_depth_and_four_responses_are_pending() {
    const DEPTH: u32 = 4;
    let peer = Peer::new();
    let repeat = |n| peer.receive(&[(Opcode::RcFetchAdd, n, peer.fetch_add(), &[])]);
    // A request that is early again after a round trip causes another NAK.
    let cause_naks = || {
        for _ in 0..40 {
            peer.receive(&[(Opcode::RcWriteOnly, 1000, peer.write(0), &[1; 4])]);
            peer.advance_round_trip();
        }
    };
    assert!((0..DEPTH).all(|n| is_answered(&peer, n)));
    (0..DEPTH).for_each(repeat);
    cause_naks();
    assert_eq!(peer.sent().len() as u32, 2 * DEPTH + 4);
    cause_naks();
    // No response to a duplicate finds room.
    let before = peer.end.counter(Counter::DropDuplicate);
    repeat(0);
    assert_eq!(peer.end.counter(Counter::DropDuplicate), before + 1);
    let sent = peer.sent();
    assert_eq!(sent.len() as u32, 2 * DEPTH + 4);
    assert!(sent.iter().all(|(_, n, _)| *n == DEPTH), "{sent:?}");
}

#[test]
fn responses_to_duplicates_are_sent_in_the_order_of_psns() {
    let peer = Peer::new();
    let only = |n| (Opcode::RcReadResponseOnly, n, ACK);
    (0..3).for_each(|n| read(&peer, n, 0, 8));
    assert_eq!(peer.sent(), [only(0), only(1), only(2)]);
    [1, 2, 0].into_iter().for_each(|n| read(&peer, n, 0, 8));
    assert_eq!(peer.sent(), [only(0), only(1), only(2)]);
    assert!(is_answered(&peer, 3));
    // The ACK of the duplicate names the newest request, whose response it must follow.
    peer.receive(&[(Opcode::RcWriteOnly, 0xff_ffff, peer.write(0), &[1; 4])]);
    peer.receive(&[(Opcode::RcFetchAdd, 3, peer.fetch_add(), &[])]);
    let expected = [(Opcode::RcAtomicAcknowledge, 3, ACK), (Opcode::RcAcknowledge, 3, ACK)];
    assert_eq!(peer.sent(), expected);
}

#[test]
fn a_repeated_read_may_be_shorter_but_not_longer() {
    for (at, len, answered) in [(0, 4096, 4), (0, 1, 1), (2, 2048, 2), (0, 4097, 0), (2, 2049, 0)] {
        let peer = Peer::new();
        read(&peer, 0, 0, 4096);
        assert_eq!(peer.sent().len(), 4);
        read(&peer, at, at.into(), len);
        assert_eq!(peer.sent().len(), answered, "{len} bytes from packet {at} on");
    }
}

#[test]
fn a_repeated_read_whose_responses_are_pending_causes_no_more() {
    for n in 0..3 {
        let peer = Peer::new();
        read(&peer, 0, 0, 3 * 1024);
        read(&peer, n, n.into(), (3 - n as usize) * 1024);
        assert_eq!(peer.end.counter(Counter::DropDuplicate), 1);
        let sent: Vec<u32> = peer.sent().iter().map(|(_, n, _)| *n).collect();
        assert_eq!(sent, [0, 1, 2]);
    }
}

#[test]
fn a_repeated_atomic_is_answered_once_while_others_are_pending() {
    let peer = Peer::new();
    assert!(is_answered(&peer, 0));
    for n in [1, 0, 1, 0] {
        peer.receive(&[(Opcode::RcFetchAdd, n, peer.fetch_add(), &[])]);
    }
    let answer = |n| (Opcode::RcAtomicAcknowledge, n, ACK);
    assert_eq!(peer.sent(), [answer(0), answer(1)]);
    assert_eq!(peer.end.counter(Counter::DropDuplicate), 2);
}
