//! This machine's own interfaces, and when `/sys` counts.

use std::fs;

use super::*;

pub(crate) const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

/// Returns an Ethernet interface that is up, without addresses.
pub(crate) fn ethernet(name: &str, mac: [u8; 6]) -> Interface {
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    Interface { index: 7, mac: Some(mac), ..blank(name.to_owned(), up) }
}

fn eth0() -> Interface {
    ethernet("eth0", MAC)
}

/// Makes a folder like `/sys/class/net` with one interface.
fn sys_with(ifindex: &str, address: &str) -> tempfile::TempDir {
    let sys = tempfile::tempdir().unwrap();
    let folder = sys.path().join("eth0");
    fs::create_dir(&folder).unwrap();
    for (file, text) in
        [("ifindex", ifindex), ("address", address), ("mtu", "9000"), ("speed", "25000")]
    {
        fs::write(folder.join(file), format!("{text}\n")).unwrap();
    }
    sys
}

#[test]
fn the_loopback_interface_is_found() {
    let all = interfaces().unwrap();
    let lo = all.iter().find(|interface| interface.loopback).expect("a loopback interface");
    assert_eq!(lo.mac, None, "a MAC of zeros is none");
    assert_ne!(lo.index, 0);
    assert!(lo.mtu_bytes >= 1280);
    assert_eq!(lo.state, OperState::Up);
    assert!(lo.has("127.0.0.1".parse().unwrap()));
    assert!(lo.has("127.3.2.1".parse().unwrap()), "all of 127/8 is local");
    assert!(!lo.has("10.0.0.1".parse().unwrap()));
}

#[test]
fn sys_is_believed_about_the_same_interface() {
    let sys = sys_with("7", "52:54:00:12:34:56");
    let mut interface = eth0();
    complete(&mut interface, sys.path(), sys.path());
    assert_eq!((interface.mtu_bytes, interface.speed_mbps), (9000, Some(25_000)));
}

#[test]
fn sys_is_not_believed_about_another_namespace() {
    let conf = tempfile::tempdir().unwrap();
    fs::create_dir(conf.path().join("eth0")).unwrap();
    fs::write(conf.path().join("eth0/mtu"), "1400\n").unwrap();
    for (ifindex, address) in [("8", "52:54:00:12:34:56"), ("7", "52:54:00:12:34:57")] {
        let sys = sys_with(ifindex, address);
        let mut interface = eth0();
        complete(&mut interface, sys.path(), conf.path());
        assert_eq!((interface.mtu_bytes, interface.speed_mbps), (1400, None));
    }
}

#[test]
fn without_sys_ethernet_is_assumed() {
    let empty = tempfile::tempdir().unwrap();
    let mut interface = eth0();
    complete(&mut interface, empty.path(), empty.path());
    assert_eq!((interface.mtu_bytes, interface.speed_mbps), (1500, None));
}

#[test]
fn an_unknown_speed_is_none() {
    for speed in ["-1", "0"] {
        let sys = sys_with("7", "52:54:00:12:34:56");
        fs::write(sys.path().join("eth0/speed"), speed).unwrap();
        let mut interface = eth0();
        complete(&mut interface, sys.path(), sys.path());
        assert_eq!(interface.speed_mbps, None);
    }
}

#[test]
fn states_follow_the_flags() {
    let state = |flags| blank("x".to_owned(), flags).state;
    assert_eq!(state(0), OperState::Disabled);
    assert_eq!(state(libc::IFF_UP), OperState::NoCarrier);
    assert_eq!(state(libc::IFF_UP | libc::IFF_RUNNING), OperState::Up);
}

#[test]
fn prefixes() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(prefix_len(ip("255.255.240.0")), 20);
    assert_eq!(prefix_len(ip("ffff:ffff::")), 32);
    assert!(same_prefix(ip("127.0.0.1"), ip("127.9.9.9"), 8));
    assert!(!same_prefix(ip("127.0.0.1"), ip("128.0.0.1"), 8));
    assert!(same_prefix(ip("::1"), ip("::1"), 128));
    assert!(!same_prefix(ip("::1"), ip("::2"), 128));
    assert!(!same_prefix(ip("127.0.0.1"), ip("::1"), 8));
    assert!(!same_prefix(ip("127.0.0.1"), ip("10.0.0.1"), 0), "no netmask says nothing");
}
