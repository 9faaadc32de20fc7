use super::*;
use crate::Opcode;
use crate::packet::ICRC_LEN;

fn v4() -> FrameRepr {
    FrameRepr::new("192.0.2.1:49321".parse().unwrap(), "198.51.100.7:4791".parse().unwrap())
}

fn v6() -> FrameRepr {
    FrameRepr::new("[2001:db8::1]:50000".parse().unwrap(), "[fe80::2]:4791".parse().unwrap())
}

#[test]
fn built_frames_parse() {
    for mut repr in [v4(), v6()] {
        for vlan in [vec![], vec![(0x8100, 0x6064)], vec![(0x88a8, 0xf001), (0x8100, 0x0fff)]] {
            repr.link = Some(LinkRepr { src: [2, 0, 0, 0, 0, 1], dst: [2, 0, 0, 0, 0, 2], vlan });
            for len in [0, 1, 2, 64] {
                let payload = vec![0x5a; len];
                let mut bytes = repr.build(&payload).unwrap();
                let frame = Frame::parse(&bytes).unwrap();
                assert_eq!(frame.repr, repr);
                assert_eq!(frame.udp_payload, payload);
                assert!(frame.ip_checksum_holds() && frame.udp_checksum_holds());
                bytes.extend([0; 7]);
                assert_eq!(
                    Frame::parse(&bytes).unwrap().udp_payload,
                    payload,
                    "Ethernet padding is not payload"
                );
            }
        }
        repr.link = None;
        let bytes = repr.build(b"raw").unwrap();
        assert_eq!(Frame::parse_ip(&bytes).unwrap().repr, repr);
    }
}

#[test]
fn a_changed_byte_breaks_a_checksum() {
    for repr in [v4(), v6()] {
        let good = repr.build(b"payload").unwrap();
        let ip_end = good.len() - 15;
        for i in ETHERNET_LEN..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 0x04;
            let Ok(frame) = Frame::parse(&bad) else { continue };
            if i >= ip_end {
                assert!(!frame.udp_checksum_holds(), "byte {i}");
            } else if frame.repr.src.is_ipv4() {
                assert!(!frame.ip_checksum_holds(), "byte {i}");
            }
        }
    }
}

#[test]
fn every_reason_has_its_error() {
    let good = v4().build(&[0; 20]).unwrap();
    let edit = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Frame::parse(&bytes).map(|_| ())
    };
    let short = |header, need, have| Err(FrameError::ShortHeader { header, need, have });
    let cut = |len: usize| Frame::parse(&good[..len]).map(|_| ());

    assert_eq!(cut(13), short(FrameHeader::Ethernet, 14, 13));
    assert_eq!(cut(14), short(FrameHeader::Ip, 1, 0));
    assert_eq!(cut(33), short(FrameHeader::Ipv4, 20, 19));
    assert_eq!(cut(61), Err(FrameError::Truncated { need: 48, have: 47 }));
    assert_eq!(edit(12, 0x09), Err(FrameError::NotIp(0x0900)));
    assert_eq!(edit(14, 0x75), Err(FrameError::BadIpVersion(7)));
    assert_eq!(edit(14, 0x46), Err(FrameError::BadIpv4HeaderLength(6)));
    assert_eq!(edit(14, 0x44), Err(FrameError::BadIpv4HeaderLength(4)));
    assert_eq!(edit(20, 0x20), Err(FrameError::Fragment { offset: 0 }), "more fragments");
    assert_eq!(edit(21, 0x02), Err(FrameError::Fragment { offset: 16 }));
    assert_eq!(edit(23, 6), Err(FrameError::NotUdp(6)));
    assert_eq!(edit(17, 10), short(FrameHeader::Udp, 8, 0), "a total length below the header's");
    assert_eq!(edit(17, 24), short(FrameHeader::Udp, 8, 4));
    assert_eq!(edit(39, 29), Err(FrameError::LengthMismatch { udp: 29, ip: 28 }));

    let mut tagged = v4();
    tagged.link = Some(LinkRepr { vlan: vec![(0x8100, 1); 3], ..LinkRepr::default() });
    assert_eq!(tagged.build(b""), Err(FrameError::TooManyVlanTags));
    let mut bytes = vec![0; 12];
    bytes.extend([0x81, 0, 0, 1].repeat(3));
    bytes.extend([8, 0]);
    assert_eq!(Frame::parse(&bytes), Err(FrameError::TooManyVlanTags));
    assert_eq!(Frame::parse(&bytes[..16]).map(|_| ()), short(FrameHeader::Vlan, 4, 2));

    let mut mixed = v4();
    mixed.dst = v6().dst;
    assert_eq!(mixed.build(b""), Err(FrameError::MixedFamilies));
    let mut mixed = v4();
    mixed.ip = v6().ip;
    assert_eq!(mixed.build(b""), Err(FrameError::MixedFamilies));
    assert_eq!(v4().build(&[0; 65_508]), Err(FrameError::PayloadTooLong(65_508)));
    assert!(v4().build(&[0; 65_507]).is_ok());
}

#[test]
fn a_wrong_ethertype_is_an_error() {
    let mut bytes = v6().build(&[0; 20]).unwrap();
    bytes[12..14].copy_from_slice(&[8, 0]);
    assert_eq!(Frame::parse(&bytes).map(|_| ()), Err(FrameError::BadIpVersion(6)));
}

#[test]
fn icrc_needs_a_bth() {
    let bytes = v4().build(&[0; 15]).unwrap();
    let frame = Frame::parse(&bytes).unwrap();
    assert_eq!(frame.icrc(), None);
    assert!(!frame.icrc_holds());
    let bytes = v4().build(&[0; 16]).unwrap();
    assert!(Frame::parse(&bytes).unwrap().icrc().is_some());
}

#[test]
fn only_a_flush_has_two_correct_icrcs() {
    use Opcode::{RcFlush, RcWriteOnly, XrcFlush};
    const END: usize = 36;
    let (src, dst) = (v4().src, v4().dst);
    let seed = crate::IcrcSeed::new(src.ip(), src.port(), dst.ip(), dst.port()).unwrap();
    for (opcode, is_flush) in [(RcFlush, true), (XrcFlush, true), (RcWriteOnly, false)] {
        let mut packet = [0; END + ICRC_LEN];
        packet[0] = opcode.byte();
        let standard = seed.icrc(0, true, &packet[..END]);
        let of_rxe = seed.rxe_flush_icrc(0, true, &packet[..END]);
        for (icrc, holds) in [(standard, true), (of_rxe, is_flush), (standard ^ 1, false)] {
            packet[END..].copy_from_slice(&icrc.to_le_bytes());
            let bytes = v4().build(&packet).unwrap();
            let frame = Frame::parse(&bytes).unwrap();
            assert_eq!(frame.icrc_holds(), holds, "{opcode}");
            assert_eq!(frame.icrc(), Some(standard), "{opcode}");
        }
    }
}

#[test]
fn a_checksum_of_ones_is_correct_only_for_the_sum_0() {
    for repr in [v4(), v6()] {
        let mut bytes = repr.build(b"payload").unwrap();
        let end = bytes.len();
        bytes[end - 9..end - 7].fill(0xff);
        let frame = Frame::parse(&bytes).unwrap();
        assert!(frame.repr.udp_checksum && !frame.udp_checksum_holds());
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    for repr in [v4(), v6()] {
        let checksum = |frame: &[u8]| frame[frame.len() - 4..][..2].to_vec();
        // A payload equal to the checksum of the frame without payload makes the sum zero.
        let payload = checksum(&repr.build(&[0, 0]).unwrap());
        let bytes = repr.build(&payload).unwrap();
        assert_eq!(checksum(&bytes), [0xff, 0xff]);
        let frame = Frame::parse(&bytes).unwrap();
        assert!(frame.repr.udp_checksum && frame.udp_checksum_holds());
    }
}
