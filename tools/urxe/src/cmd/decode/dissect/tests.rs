//! Generated packets: complete, truncated at every length, and damaged at every byte.

use proptest::prelude::*;
use urxe_wire::frame::FrameRepr;
use urxe_wire::{Bth, Ext, IcrcSeed, Opcode, PacketRepr, Psn, Qpn, Reth, Rkey};

use super::*;
use crate::cmd::decode::{json, line, verbose};

/// Returns an Ethernet frame with a WRITE ONLY of `payload`.
fn write_only(payload: &[u8]) -> Vec<u8> {
    let (src, dst) = ("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
    let frame = FrameRepr::new(src, dst);
    let bth = Bth::new(Opcode::RcWriteOnly, Qpn::new(0x11).unwrap(), Psn::new(7));
    let reth = Reth { va: 0x1000, rkey: Rkey(5), dma_len: payload.len() as u32 };
    let mut packet = vec![0; 200 + payload.len()];
    let end = PacketRepr::new(bth, Ext::Reth(reth)).emit(payload, &mut packet).unwrap();
    let seed =
        IcrcSeed::new(frame.src.ip(), frame.src.port(), frame.dst.ip(), frame.dst.port()).unwrap();
    let len = seed.append(0, &mut packet, end).unwrap();
    frame.build(&packet[..len]).unwrap()
}

/// Returns the line, verbose and JSON renderings of a record of `bytes`, of which the capture kept
/// `kept`.
fn rendered(bytes: &[u8], kept: usize) -> [String; 3] {
    let record = Record {
        time_ns: Some(1_500_000),
        link_type: 1,
        bytes: &bytes[..kept],
        original_len: bytes.len() as u32,
        comment: None,
    };
    let whole = as_on_the_wire(&record);
    let packet = Packet::new(1, &record, &whole);
    let (mut one_line, mut fields) = (Vec::new(), Vec::new());
    line::print(&mut one_line, &packet, 1_000_000).unwrap();
    verbose::print(&mut fields, &packet).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    [text(one_line), text(fields), serde_json::to_string(&json::object(&packet)).unwrap()]
}

#[test]
fn a_whole_packet() {
    let bytes = write_only(b"hello");
    let [one_line, fields, json] = rendered(&bytes, bytes.len());
    assert_eq!(
        one_line,
        "    1    0.000500  10.0.0.1 > 10.0.0.2  RC RDMA_WRITE_ONLY qp 0x000011 psn 7, \
         va 0x1000 rkey 0x00000005 dmalen 5, 5 bytes, ICRC ok\n"
    );
    assert!(fields.contains("68 65 6c 6c 6f"), "{fields}");
    assert!(fields.contains("5 bytes, 3 of pad"), "{fields}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["kind"], "roce");
    assert_eq!(json["icrc"]["ok"], true);
    assert_eq!(json["bth"]["name"], "RC RDMA_WRITE_ONLY");
    assert_eq!(json["reth"]["va"], "0x0000000000001000");
    assert_eq!(json["time"], "0.001500000");
}

#[test]
fn a_flipped_bit_breaks_the_icrc() {
    let mut bytes = write_only(b"hello");
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    let [one_line, fields, json] = rendered(&bytes, bytes.len());
    assert!(one_line.ends_with("ICRC WRONG\n"), "{one_line}");
    assert!(fields.contains("WRONG, should be 0x"), "{fields}");
    assert!(json.contains("\"ok\":false"), "{json}");
}

#[test]
fn a_truncated_packet_shows_its_captured_part() {
    let bytes = write_only(&[0xee; 300]);
    // Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16.
    let headers = 70;
    for kept in 0..bytes.len() {
        let [one_line, fields, json] = rendered(&bytes, kept);
        if kept < headers {
            assert!(one_line.contains("cut by the capture: "), "{kept}: {one_line}");
            assert!(json.contains("\"kind\":\"cut\""), "{kept}: {json}");
        } else {
            assert!(one_line.ends_with("300 bytes, ICRC not captured\n"), "{kept}: {one_line}");
            let shown = fields.matches("ee").count();
            assert_eq!(shown, (kept - headers).min(64), "{kept}: {fields}");
        }
    }
}

#[test]
fn a_malformed_packet_has_a_reason() {
    let mut bytes = write_only(b"");
    bytes[14 + 28] = 0x5f;
    let [one_line, _, json] = rendered(&bytes, bytes.len());
    assert!(one_line.contains("MALFORMED (reliable_datagram): opcode 0x5f"), "{one_line}");
    assert!(json.contains("\"reason_name\":\"reliable_datagram\""), "{json}");
}

#[test]
fn another_port_is_not_roce() {
    let frame = FrameRepr::new("10.0.0.1:4791".parse().unwrap(), "10.0.0.2:53".parse().unwrap());
    let bytes = frame.build(b"question").unwrap();
    let [one_line, ..] = rendered(&bytes, bytes.len());
    assert!(one_line.ends_with("not RoCEv2: UDP 4791 > 53, 8 bytes\n"), "{one_line}");
}

#[test]
fn a_damaged_length_does_not_fill_the_memory() {
    let record = Record {
        time_ns: None,
        link_type: 1,
        bytes: &[1, 2, 3],
        original_len: u32::MAX,
        comment: None,
    };
    assert_eq!(as_on_the_wire(&record).len(), 3);
}

proptest! {
    #[test]
    fn any_damage_can_be_shown(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        kept in any::<prop::sample::Index>(),
        payload in 0..40usize,
    ) {
        let mut bytes = write_only(&vec![1; payload]);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let kept = kept.index(bytes.len() + 1);
        let [one_line, _, json] = rendered(&bytes, kept);
        prop_assert_eq!(one_line.lines().count(), 1);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    }
}
