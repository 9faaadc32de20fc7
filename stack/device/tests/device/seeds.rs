//! What the ICRCs of received packets begin with is kept from one datagram to the next, and is that
//! of the right peer.

use super::*;

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
            // The same bytes from another port have another ICRC, whatever was received last.
            let other = Carried { from_port: ROCE_PORT + 1, ..packets.clone() };
            assert_ne!(packets.icrc_seed(), other.icrc_seed());
            wire.deliver(&a.device, Time::ZERO, &other);
            assert_eq!(values()[0], before[0] + 1, "round {nr}");
        }
    }
}
