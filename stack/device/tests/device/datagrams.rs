//! Datagrams as they arrive: packets for no queue pair, and checks of ICRCs.

use std::net::Ipv6Addr;

use urxe_test_support::packet::{send_only, write_only};

use super::bursts::Sender;
use super::*;

#[test]
fn the_positions_of_unmatched_packets_are_those_of_the_last_call() {
    let end = Host::new(A, 1);
    let mut scratch = ReceiveScratch::collecting_unmatched();
    let mut receive = |run: &PacketRun| {
        end.device.receive(Time::ZERO, &run.datagrams(), &mut scratch);
        scratch.unmatched.as_ref().unwrap().segments().to_vec()
    };
    let management = Packet::merge(B.into(), A.into(), [(Qpn::masked(1), send_only(0, &[]))]);
    assert_eq!(receive(&management), [0]);
    assert_eq!(receive(&PacketRun { bytes: Vec::new(), ..management.clone() }), [], "an empty one");
    assert_eq!(receive(&management), [0]);
    let mixed = PacketRun { from: Ipv6Addr::LOCALHOST.into(), ..management };
    assert_eq!(receive(&mixed), [], "from an address of another IP version");
    assert_eq!(end.device.counters().value(Counter::DropMalformed), 1);
}

#[test]
fn the_mark_of_a_packet_that_is_dropped_is_not_reported_to_the_peer() {
    let sender = Sender::new(1);
    let Remote { addr, rkey } = sender.end.remote(0);
    let receive = |from: Ipv4Addr, pkey| {
        let write = Packet { pkey, ..write_only(qp::FIRST_PSN.value(), addr, rkey, &[1; 4]) };
        let run = Packet::merge(from.into(), A.into(), [(sender.qps[0].qpn(), write)]);
        let marked = PacketRun { traffic_class: 3, ..run };
        sender.wire.deliver(&sender.end.device, sender.end.clock.now(), &marked);
        sender.take().len()
    };
    assert_eq!(receive(Ipv4Addr::new(10, 9, 9, 9), 0xffff), 0, "a forged source");
    assert_eq!(receive(B, 0x8001), 0, "another partition");
    assert_eq!(sender.end.device.counters().value(Counter::EcnMarked), 0);
    assert_eq!(receive(B, 0xffff), 2, "the acknowledgement and the notification");
    assert_eq!(sender.end.device.counters().value(Counter::EcnMarked), 1);
}

/// The seed of the ICRCs is kept from one datagram to the next of the same flow.
#[test]
fn datagrams_of_several_peers_each_meet_their_own_seed() {
    let (a, b, wire) = pair();
    let c = Host::new(Ipv4Addr::new(10, 0, 0, 3), 3);
    let of_a = a.create_qp();
    a.connect_qp(of_a, c.qp.qpn(), Ipv4Addr::new(10, 0, 0, 3));
    c.connect_qp(c.qp, of_a.qpn(), A);
    for nr in 0..3 {
        for end in [&b, &c] {
            end.post(SendOp::Write { remote: a.remote(0) }, &[end.sge(0, 16)]);
            end.transmit(&wire);
            let packets = wire.pop().unwrap();
            let values =
                || [Counter::IcrcExact, Counter::DropIcrc].map(|counter| a.counter(counter));
            let before = values();
            wire.deliver(&a.device, Time::ZERO, &packets);
            assert_eq!(values(), [before[0] + 1, before[1]], "round {nr}");
            // The ICRC is wrong for the same bytes from another port, whatever arrived last.
            let other = PacketRun { from_port: ROCE_PORT + 1, ..packets.clone() };
            assert_ne!(packets.icrc_seed(), other.icrc_seed());
            wire.deliver(&a.device, Time::ZERO, &other);
            assert_eq!(values()[0], before[0] + 1, "round {nr}");
        }
    }
}
