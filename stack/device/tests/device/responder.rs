//! The responder of a connection whose peer is the test: bounds of PSNs, kept responses, and the
//! state after a reset.

use urxe_device::cq::QpEventType;
use urxe_test_support::packet::send_only;
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
