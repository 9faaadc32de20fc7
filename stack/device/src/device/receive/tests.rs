//! The decision on a packet, without queue pairs.

use super::*;

const QP: Qpn = Qpn::masked(0x1234);
const OTHER: Qpn = Qpn::masked(0x5678);

/// A packet of a SEND to [`QP`], while no queue pair is locked.
const PACKET: PacketFacts =
    PacketFacts { kind: Kind::Send, dest_qp: QP, to_group: false, locked: None, shares_gsi: false };

/// Decides for a device that has [`QP`], [`OTHER`] and queue pair 1.
fn step(packet: PacketFacts) -> Step {
    next_step(packet, |qpn| {
        [GSI_QPN, QP, OTHER].iter().position(|of| *of == qpn).map(|at| at as u32)
    })
}

#[test]
fn a_packet_goes_to_the_locked_queue_pair_without_a_look_up_or_to_another() {
    let locked = PacketFacts { locked: Some(QP), ..PACKET };
    assert_eq!(next_step(locked, |_| panic!("a look-up")), Step::Deliver);
    assert_eq!(step(PACKET), Step::Switch(1));
    assert_eq!(step(PacketFacts { locked: Some(OTHER), ..PACKET }), Step::Switch(1));
}

#[test]
fn an_unknown_number_is_unmatched_with_and_without_a_locked_queue_pair() {
    let packet = PacketFacts { dest_qp: Qpn::masked(0x9999), ..PACKET };
    assert_eq!(step(packet), Step::Unmatched);
    assert_eq!(step(PacketFacts { locked: Some(QP), ..packet }), Step::Unmatched);
}

#[test]
fn queue_pair_1_is_the_devices_unless_processes_share_it() {
    let packet = PacketFacts { dest_qp: GSI_QPN, ..PACKET };
    assert_eq!(step(packet), Step::Switch(0));
    assert_eq!(step(PacketFacts { shares_gsi: true, ..packet }), Step::Unmatched);
    assert_eq!(step(PacketFacts { shares_gsi: true, ..PACKET }), Step::Switch(1), "others are not");
}

#[test]
fn a_notification_and_a_packet_to_a_group_go_to_no_queue_pair_that_is_locked() {
    let locked = PacketFacts { locked: Some(QP), ..PACKET };
    assert_eq!(step(PacketFacts { kind: Kind::Cnp, ..locked }), Step::Notify);
    assert_eq!(step(PacketFacts { to_group: true, ..locked }), Step::Group);
    assert_eq!(step(PacketFacts { dest_qp: Qpn::MULTICAST, ..locked }), Step::Group);
    let notification = PacketFacts { kind: Kind::Cnp, to_group: true, ..locked };
    assert_eq!(step(notification), Step::Notify);
}

#[test]
fn one_of_many_queue_pairs_gives_its_acknowledgement_away_and_a_single_one_keeps_it() {
    assert!(!collects_ack(NextPacket::End, true), "the only one");
    assert!(collects_ack(NextPacket::OtherQp, true), "the first of several");
    assert!(collects_ack(NextPacket::End, false), "the last of several");
}
