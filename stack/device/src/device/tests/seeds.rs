//! What the ICRCs of received packets begin with is kept from one datagram to the next, and is that
//! of the right peer.

use urxe_wire::IcrcSeed;

use super::*;

#[test]
fn datagrams_of_several_peers_each_meet_their_own_seed() {
    let (a, b, wire) = pair();
    let c = End::new(Ipv4Addr::new(10, 0, 0, 3), 3);
    let of_a = create_qp(&a.device, a.pd, &a.cq);
    a.connect_qp(of_a, c.qp.qpn(), Ipv4Addr::new(10, 0, 0, 3));
    c.connect_qp(c.qp, of_a.qpn(), A);
    let mut scratch = ReceiveScratch::default();
    for nr in 0..3 {
        for end in [&b, &c] {
            end.post(SendOp::Write { remote: a.remote(0) }, &[end.sge(0, 16)]);
            end.device.transmit_pending(Time::ZERO, &wire);
            let packets = lock(&wire.0).pop_front().unwrap();
            let of = |from, from_port| Datagrams {
                from,
                from_port,
                to: packets.to,
                bytes: &packets.bytes,
                segment_size: packets.segment_size,
                traffic_class: 0,
                hop_limit: 64,
            };
            let (exact, bad) = (Counter::IcrcExact, Counter::DropIcrc);
            let values = || [exact, bad].map(|counter| a.device.counters().value(counter));
            let before = values();
            a.device.receive(Time::ZERO, &of(packets.from, ROCE_PORT), &mut scratch);
            assert_eq!(values(), [before[0] + 1, before[1]], "round {nr}");
            // The same bytes from another port have another ICRC, whatever was received last.
            let seed = |port| IcrcSeed::new(packets.from, port, packets.to, ROCE_PORT).unwrap();
            assert_ne!(seed(ROCE_PORT), seed(ROCE_PORT + 1));
            a.device.receive(Time::ZERO, &of(packets.from, ROCE_PORT + 1), &mut scratch);
            assert_eq!(values()[0], before[0] + 1, "round {nr}");
        }
    }
}
