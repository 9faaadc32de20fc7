use super::*;

#[test]
fn ipv4_is_mapped() {
    let gid = Gid::from_ip("10.77.0.12".parse().unwrap());
    assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a4d:000c");
    assert_eq!(gid.to_ip(), "10.77.0.12".parse::<IpAddr>().unwrap());
    assert_eq!(gid.to_ipv4(), Some(Ipv4Addr::new(10, 77, 0, 12)));
}

#[test]
fn every_form_reads_back() {
    let gid = Gid::from_ip("fe80::1:2".parse().unwrap());
    assert_eq!(gid.to_string().parse(), Ok(gid));
    assert_eq!("fe80::1:2".parse(), Ok(gid));
    assert_eq!("fe800000000000000000000000010002".parse(), Ok(gid));
    assert_eq!("10.77.0.12".parse(), Ok(Gid::from_ip("::ffff:10.77.0.12".parse().unwrap())));
    assert_eq!(gid.to_ipv4(), None);
    for wrong in [
        "",
        "rxe0",
        "fe80",
        "fe80000000000000000000000001000g",
        "+e800000000000000000000000010002",
        "10.0.0",
    ] {
        assert_eq!(wrong.parse::<Gid>(), Err(GidParseError), "{wrong}");
    }
}

#[test]
fn multicast_in_both_families() {
    assert!(Gid::from_ip("224.1.2.3".parse().unwrap()).is_multicast());
    assert!(Gid::from_ip("ff02::1".parse().unwrap()).is_multicast());
    assert!(!Gid::from_ip("10.0.0.1".parse().unwrap()).is_multicast());
    assert!(Gid::ZERO.is_zero() && !Gid::from(IpAddr::from([10, 0, 0, 1])).is_zero());
}
