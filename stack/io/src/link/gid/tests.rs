//! GIDs, GUIDs and the order of the table.

use super::*;
use crate::link::interface::tests::MAC;

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn shown(table: &[GidEntry]) -> Vec<(String, bool)> {
    table.iter().map(|entry| (entry.gid.to_ip().to_string(), entry.assigned)).collect()
}

#[test]
fn guid_of_a_mac_is_the_modified_eui64() {
    assert_eq!(Guid::from_mac(MAC).to_string(), "5054:00ff:fe12:3456");
    assert_eq!(link_local(Guid::from_mac(MAC)).to_ip().to_string(), "fe80::5054:ff:fe12:3456");
}

#[test]
fn guid_of_an_address_is_its_own() {
    assert_eq!(Guid::from_address(ip("127.0.0.1")).to_string(), "0000:5efe:7f00:0001");
    assert_eq!(Guid::from_address(ip("::1")).to_string(), "0000:0000:0000:0001");
    assert_ne!(Guid::from_address(ip("fd00:1::1")), Guid::from_address(ip("fd00:2::1")));
}

#[test]
fn an_address_stands_at_index_0_to_3() {
    let table = table_of_address(ip("10.0.0.1"));
    assert_eq!(shown(&table), vec![("10.0.0.1".to_owned(), true); 4]);
}

#[test]
fn an_interface_begins_with_the_link_local_gid() {
    let addresses = [ip("10.0.0.1"), ip("fd00::1"), ip("fe80::5054:ff:fe12:3456")];
    let table = table_of_interface(Some(MAC), &addresses);
    let expected = [("fe80::5054:ff:fe12:3456", true), ("10.0.0.1", true), ("fd00::1", true)];
    assert_eq!(shown(&table), expected.map(|(gid, assigned)| (gid.to_owned(), assigned)));
}

#[test]
fn a_link_local_gid_without_its_address_is_not_assigned() {
    let table = table_of_interface(Some(MAC), &[ip("fe80::1")]);
    let expected = [("fe80::5054:ff:fe12:3456", false), ("fe80::1", true)];
    assert_eq!(shown(&table), expected.map(|(gid, assigned)| (gid.to_owned(), assigned)));
    assert_eq!(shown(&table_of_interface(None, &[ip("::1")])), [("::1".to_owned(), true)]);
}

#[test]
fn unicast_only() {
    for address in ["127.0.0.1", "10.0.0.1", "fe80::1", "::1"] {
        assert!(is_unicast(ip(address)), "{address}");
    }
    for address in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
        assert!(!is_unicast(ip(address)), "{address}");
    }
}
