use super::*;
use proptest::prelude::*;

/// IBTA 9.7.1.
#[test]
fn psn_wraps_at_24_bits() {
    let last = Psn::new(0xff_ffff);
    assert_eq!(last.next(), Psn::new(0));
    assert_eq!(Psn::new(7).next(), Psn::new(8));
    assert_eq!(Msn::masked(0xff_ffff).add(2), Msn::masked(1));
    assert_eq!(Psn::new(0).sub(1), last);
    assert_eq!(Psn::new(0x0100_0007), Psn::new(7), "bits above 24 are dropped");
    assert_eq!(Psn::new(3).distance(Psn::new(0xff_fffe)), 5);
    assert_eq!(Psn::new(0xff_fffe).distance(Psn::new(3)), -5);
    assert_eq!(Psn::new(3).steps_from(Psn::new(0xff_fffe)), 5);
    assert!(last.precedes(Psn::new(0)));
    assert!(!Psn::new(0).precedes(last));
    assert!(!last.precedes(last));
    assert!(Psn::new(1).within(last, 3));
    assert!(!Psn::new(2).within(last, 3));
}

/// IBTA 9.7.1.
#[test]
fn half_the_circle_is_the_limit_of_before() {
    let a = Psn::new(10);
    assert_eq!(a.add((1 << 23) - 1).distance(a), (1 << 23) - 1);
    assert_eq!(a.add(1 << 23).distance(a), -(1 << 23));
}

#[test]
fn wide_numbers_are_refused() {
    assert_eq!(Qpn::new(0x100_0000), None);
    assert_eq!(Qpn::new(0xff_ffff), Some(Qpn::MULTICAST));
    assert_eq!(Qpn::try_from(0x100_0000), Err(OutOfRange { value: 0x100_0000 }));
    assert_eq!(OutOfRange { value: 0x100_0000 }.to_string(), "0x1000000 does not fit in 24 bits");
}

#[test]
fn shapes_of_display() {
    assert_eq!(Qpn::masked(0x11).to_string(), "0x000011");
    assert_eq!(Psn::new(1234).to_string(), "1234");
    assert_eq!(Rkey(0x1f).to_string(), "0x0000001f");
    assert_eq!(PKey::DEFAULT.to_string(), "0xffff");
}

/// IBTA 10.9.3 (P_Key) and 10.2.5 (privileged Q_Keys).
#[test]
fn limited_members_cannot_talk_to_each_other() {
    assert!(PKey(0xffff).matches(PKey(0xffff)));
    assert!(PKey(0xffff).matches(PKey(0x7fff)));
    assert!(PKey(0x0001).matches(PKey(0x8001)) && PKey(0x8001).matches(PKey(0x0001)));
    assert!(!PKey(0x7fff).matches(PKey(0x7fff)));
    assert!(!PKey(0xffff).matches(PKey(0x8001)));
    assert!(QKey::GSI.is_controlled());
    assert!(!QKey(0x0123_4567).is_controlled());
}

proptest! {
    #[test]
    fn distance_undoes_add(start in any::<u32>(), n in 0u32..(1 << 23)) {
        let a = Psn::new(start);
        let b = a.add(n);
        prop_assert_eq!(b.distance(a), n as i32);
        prop_assert_eq!(a.distance(b), -(n as i32));
        prop_assert_eq!(b.sub(n), a);
        prop_assert_eq!(Psn::from_be_bytes(b.to_be_bytes()), b);
        prop_assert_eq!(a.precedes(b), n != 0);
    }
}
