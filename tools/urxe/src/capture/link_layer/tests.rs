//! One IP packet behind every link type, and frames of other protocols.

use urxe_wire::frame::{FrameRepr, LinkRepr};

use super::*;

fn datagram() -> Vec<u8> {
    let mut repr =
        FrameRepr::new("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
    repr.link = None;
    repr.build(&[7; 20]).unwrap()
}

fn behind(head: &[u8]) -> Vec<u8> {
    [head, &datagram()].concat()
}

#[test]
fn every_link_type_leads_to_the_same_datagram() {
    let mut sll = [0; 16];
    sll[14..].copy_from_slice(&[0x08, 0x00]);
    let mut sll2 = [0; 20];
    sll2[..2].copy_from_slice(&[0x08, 0x00]);
    let mut ethernet = [0; 14];
    ethernet[12..].copy_from_slice(&[0x08, 0x00]);
    let cases = [
        (1, behind(&ethernet)),
        (113, behind(&sll)),
        (276, behind(&sll2)),
        (101, datagram()),
        (0, behind(&[2, 0, 0, 0])),
    ];
    for (link_type, bytes) in cases {
        let frame = parse(link_type, &bytes).unwrap();
        assert_eq!(frame.udp_payload, [7; 20], "link type {link_type}");
        assert_eq!(frame.repr.src, "10.0.0.1:49152".parse().unwrap());
        assert_eq!(frame.repr.link.is_some(), link_type == 1);
    }
}

#[test]
fn vlan_tags_are_kept() {
    let mut repr =
        FrameRepr::new("[fd00::1]:49152".parse().unwrap(), "[fd00::2]:4791".parse().unwrap());
    repr.link = Some(LinkRepr { vlan: vec![(0x8100, 0x6007)], ..LinkRepr::default() });
    let bytes = repr.build(&[1]).unwrap();
    assert_eq!(parse(1, &bytes).unwrap().repr, repr);
}

#[test]
fn other_protocols_have_their_names() {
    let name = |link_type, bytes: &[u8]| {
        let other = parse(link_type, bytes).unwrap_err();
        assert!(other.is_other_protocol(), "{other}");
        other.to_string()
    };
    let mut arp = [0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(name(1, &arp), "ARP");
    let mut tcp = datagram();
    tcp[9] = 6;
    assert_eq!(name(101, &tcp), "TCP");
    assert_eq!(name(147, &tcp), "link type 147 is not understood");
    let mut cooked_lldp = [0; 40];
    cooked_lldp[14..16].copy_from_slice(&[0x88, 0xcc]);
    assert_eq!(name(113, &cooked_lldp), "LLDP");
}

#[test]
fn short_records_are_damaged() {
    for (link_type, len) in [(1, 13), (113, 15), (276, 19), (101, 0), (0, 3)] {
        let other = parse(link_type, &vec![0; len]).unwrap_err();
        assert!(!other.is_other_protocol(), "link type {link_type}: {other}");
    }
}
