//! Every reason why bytes are not a packet, and packets that crashed kernels.

use std::collections::BTreeSet;

use urxe_wire::packet::{ICRC_LEN, MAX_PAYLOAD};
use urxe_wire::{
    Aeth, AtomicEth, Bth, Deth, Ext, Feth, Frame, FrameRepr, Grh, IcrcSeed, IcrcSolver,
    IcrcVerdict, Ieth, ImmDt, Opcode, PacketRepr, PacketView, ParseError, Psn, Qpn, Reth, Rkey,
    XrcEth, error::Header,
};

/// Returns a packet of `len` bytes that starts with this opcode and these flags.
fn bytes(opcode: u8, flags: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if let Some(b) = bytes.get_mut(..2) {
        b.copy_from_slice(&[opcode, flags]);
    }
    bytes
}

fn reason(opcode: u8, flags: u8, len: usize) -> Result<usize, ParseError> {
    PacketView::parse(&bytes(opcode, flags, len)).map(|p| p.payload_len())
}

const SEND_ONLY: u8 = 0x04;
const WRITE_ONLY: u8 = 0x0a;
const ACK: u8 = 0x11;
const ATOMIC_WRITE: u8 = 0x1d;
const CNP: u8 = 0x81;

#[test]
fn too_short_for_any_packet() {
    for len in 0..16 {
        assert_eq!(reason(SEND_ONLY, 0, len), Err(ParseError::ShortPacket { have: len }));
    }
    assert_eq!(reason(SEND_ONLY, 0, 16), Ok(0), "a SEND of nothing");
}

#[test]
fn too_short_for_its_headers() {
    for opcode in Opcode::all() {
        let need = opcode.info().headers_len() + ICRC_LEN;
        for have in (16..need).step_by(4) {
            assert_eq!(
                reason(opcode.byte(), 0, have),
                Err(ParseError::ShortHeaders { opcode, need, have })
            );
        }
    }
}

#[test]
fn bad_version() {
    for version in 1..16 {
        assert_eq!(reason(SEND_ONLY, version, 32), Err(ParseError::BadVersion(version)));
    }
}

#[test]
fn unknown_opcodes() {
    assert_eq!(reason(0x15, 0, 32), Err(ParseError::UnknownOpcode(0x15)));
    assert_eq!(reason(0xe0, 0, 32), Err(ParseError::UnknownOpcode(0xe0)));
    assert_eq!(reason(0x44, 0, 32), Err(ParseError::ReliableDatagram(0x44)));
}

#[test]
fn lengths_that_are_no_multiple_of_four() {
    for extra in 1..4 {
        for pad in 0..4 {
            assert_eq!(
                reason(SEND_ONLY, pad << 4, 32 + extra),
                Err(ParseError::Unaligned { have: 32 + extra })
            );
        }
    }
}

#[test]
fn pads() {
    assert_eq!(reason(SEND_ONLY, 0x30, 20), Ok(1));
    assert_eq!(reason(SEND_ONLY, 0x30, 16), Err(ParseError::PadExceedsPayload { pad: 3, have: 0 }));
    let opcode = Opcode::RcAcknowledge;
    assert_eq!(reason(ACK, 0x10, 20), Err(ParseError::PadWithoutPayload { opcode, pad: 1 }));
    assert_eq!(reason(ACK, 0x10, 24), Err(ParseError::PadWithoutPayload { opcode, pad: 1 }));
}

#[test]
fn payloads() {
    let opcode = Opcode::RcAcknowledge;
    assert_eq!(reason(ACK, 0, 24), Err(ParseError::UnexpectedPayload { opcode, have: 4 }));
    assert_eq!(reason(SEND_ONLY, 0, 16 + MAX_PAYLOAD), Ok(MAX_PAYLOAD));
    assert_eq!(
        reason(SEND_ONLY, 0, 20 + MAX_PAYLOAD),
        Err(ParseError::PayloadTooLong { have: MAX_PAYLOAD + 4 })
    );
    assert_eq!(
        reason(SEND_ONLY, 0x10, 20 + MAX_PAYLOAD),
        Err(ParseError::PayloadTooLong { have: MAX_PAYLOAD + 3 })
    );
    let opcode = Opcode::Cnp;
    assert_eq!(reason(CNP, 0, 32), Ok(16));
    assert_eq!(reason(CNP, 0, 16), Err(ParseError::PayloadLength { opcode, need: 16, have: 0 }));
}

#[test]
fn headers_cut_short() {
    fn cut<T>(header: Header, need: usize, parse: impl Fn(&[u8]) -> Result<T, ParseError>) {
        for have in 0..need {
            let error = parse(&vec![0x64; have]).err().unwrap();
            assert_eq!(error, ParseError::ShortHeader { header, need, have });
        }
        assert!(parse(&vec![0x64; need]).is_ok());
    }
    cut(Header::Bth, 12, Bth::parse);
    cut(Header::Grh, 40, Grh::parse);
    cut(Header::XrcEth, 4, XrcEth::parse);
    cut(Header::Deth, 8, Deth::parse);
    cut(Header::Feth, 4, Feth::parse);
    cut(Header::Reth, 16, Reth::parse);
    cut(Header::AtomicEth, 28, AtomicEth::parse);
    cut(Header::Aeth, 4, Aeth::parse);
    cut(Header::AtomicAckEth, 8, urxe_wire::AtomicAckEth::parse);
    cut(Header::ImmDt, 4, ImmDt::parse);
    cut(Header::Ieth, 4, Ieth::parse);
    assert_eq!(Grh::parse(&[0x45; 40]), Err(ParseError::BadGrhVersion(4)));
}

#[test]
fn bad_icrc() {
    let seed = IcrcSeed::new([10, 0, 0, 1].into(), 4791, [10, 0, 0, 2].into(), 4791).unwrap();
    let mut packet = bytes(SEND_ONLY, 0, 80);
    assert_eq!(seed.append(0, &mut packet, 76), Some(80));
    let mut solver = IcrcSolver::new();
    assert_eq!(seed.verify(&mut solver, &packet, 0), IcrcVerdict::Exact { identification: 0 });
    packet[20] ^= 1;
    assert_eq!(seed.verify(&mut solver, &packet, 0), IcrcVerdict::Bad);
    for len in 0..4 {
        assert_eq!(seed.verify(&mut solver, &packet[..len], 0), IcrcVerdict::Bad);
    }
}

/// Counters use the names, so no name may occur twice.
#[test]
fn reasons_have_names_of_their_own() {
    let names: BTreeSet<_> = ParseError::NAMES.into_iter().collect();
    assert_eq!(names.len(), ParseError::NAMES.len());
    assert_eq!(ParseError::ShortPacket { have: 0 }.name(), "short_packet");
    assert_eq!(ParseError::BadGrhVersion(0).index(), ParseError::NAMES.len() - 1);
    assert_eq!(ParseError::UnknownOpcode(0x15).to_string(), "opcode 0x15 is not defined");
}

/// rxe subtracted headers and pad from the length without a check. A pad count in a packet without
/// payload made the result wrap around (Linux f849cdc50).
#[test]
fn pad_underflow() {
    for opcode in Opcode::all() {
        let shortest = opcode.info().headers_len() + ICRC_LEN;
        for pad in 1..4u8 {
            let error = reason(opcode.byte(), pad << 4, shortest).unwrap_err();
            let want = match opcode.info().has_payload() {
                true => ParseError::PadExceedsPayload { pad, have: 0 },
                false => ParseError::PadWithoutPayload { opcode, pad },
            };
            assert_eq!(error, want);
        }
    }
}

/// One datagram crashed a host. An opcode without a table row counted as zero bytes of headers, and
/// the ICRC was computed over more bytes than the packet had (Linux 3723cf690).
///
/// No opcode, flag or length may panic in the parser or in the ICRC, and no byte without a row may
/// become a packet.
#[test]
fn one_packet_panics() {
    let seed = IcrcSeed::new([10, 0, 0, 1].into(), 4791, [10, 0, 0, 2].into(), 4791).unwrap();
    let mut solver = IcrcSolver::new();
    for opcode in 0..=u8::MAX {
        for flags in [0, 0x10, 0x20, 0x30, 0x0f, 0xc0, 0xff] {
            for len in 0..72 {
                let mut packet = bytes(opcode, flags, len);
                let parsed = PacketView::parse(&packet).map(|p| {
                    assert_eq!(
                        p.payload().len()
                            + p.info().headers_len()
                            + usize::from(p.pad_count())
                            + ICRC_LEN,
                        len
                    );
                });
                assert!(parsed.is_err() || Opcode::try_from(opcode).is_ok());
                let _ = seed.verify(&mut solver, &packet, 0);
                if let Some(end) = len.checked_sub(ICRC_LEN) {
                    assert_eq!(seed.append(0, &mut packet, end), Some(len));
                    let frame = FrameRepr::new(
                        "10.0.0.1:4791".parse().unwrap(),
                        "10.0.0.2:4791".parse().unwrap(),
                    );
                    let frame = frame.build(&packet).unwrap();
                    assert_eq!(Frame::parse(&frame).unwrap().icrc_holds(), len >= 16);
                }
            }
        }
    }
}

/// rxe's ATOMIC WRITE always read eight bytes after the headers. With a shorter payload it wrote
/// bytes of the kernel's heap to the peer's memory (Linux 0dddafcdb).
#[test]
fn atomic_write_leak() {
    let opcode = Opcode::RcAtomicWrite;
    let headers = opcode.info().headers_len();
    assert_eq!(headers, 28);
    for payload in [0, 4, 12, 16] {
        let len = headers + payload + ICRC_LEN;
        assert_eq!(
            reason(ATOMIC_WRITE, 0, len),
            Err(ParseError::PayloadLength { opcode, need: 8, have: payload })
        );
    }
    for pad in 1..4u8 {
        let have = 8 - usize::from(pad);
        let got = reason(ATOMIC_WRITE, pad << 4, headers + 8 + ICRC_LEN);
        assert_eq!(got, Err(ParseError::PayloadLength { opcode, need: 8, have }));
    }
    assert_eq!(reason(ATOMIC_WRITE, 0, headers + 8 + ICRC_LEN), Ok(8));

    let bth = Bth::new(opcode, Qpn::masked(2), Psn::new(0));
    let repr = PacketRepr::new(bth, Ext::Reth(Reth { va: 0, rkey: Rkey(1), dma_len: 8 }));
    assert!(repr.emit(&[1; 7], &mut [0; 64]).is_err(), "nor do we send one");
}

#[test]
fn a_write_of_nothing_is_a_packet() {
    assert_eq!(reason(WRITE_ONLY, 0, 32), Ok(0));
}
