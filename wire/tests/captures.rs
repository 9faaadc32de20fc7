//! Packets of real kernels: Linux 6.12 (10.77.0.12) to Linux 6.1 (10.77.0.11), with `rdma_rxe` on
//! both sides and programs of rdma-core 44.
//!
//! Every packet must parse. Three ways to compute the ICRC must agree with the packet. Emitting the
//! parsed values must yield the same bytes, up to the whole frame.

mod support;

use support::captures;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Frame, IcrcSeed, IcrcSolver, IcrcVerdict, IpRepr, Opcode, PacketView, ROCE_PORT};

/// Calls `check` with every RoCE packet of every capture, and returns the number of packets.
fn for_each_packet(mut check: impl FnMut(&str, &Frame<'_>, &PacketView<'_>)) -> usize {
    let mut count = 0;
    for (name, frames) in captures() {
        let mut in_this_one = 0;
        for (i, bytes) in frames.iter().enumerate() {
            let at = format!("{name} frame {}", i + 1);
            let frame = Frame::parse(bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
            if frame.repr.dst.port() != ROCE_PORT {
                continue;
            }
            let packet =
                PacketView::parse(frame.udp_payload).unwrap_or_else(|e| panic!("{at}: {e}"));
            check(&at, &frame, &packet);
            in_this_one += 1;
        }
        assert!(in_this_one > 0, "no RoCE packet in {name}");
        count += in_this_one;
    }
    count
}

fn seed_of(frame: &Frame<'_>) -> IcrcSeed {
    let (src, dst) = (frame.repr.src, frame.repr.dst);
    IcrcSeed::new(src.ip(), src.port(), dst.ip(), dst.port()).unwrap()
}

#[test]
fn all_captures_are_read() {
    let count = for_each_packet(|_, _, _| {});
    assert_eq!(captures().len(), 19);
    assert_eq!(count, PACKETS);
}

/// Number of packets whose IPv4 identification is not 0.
const SOLVED: usize = 800;

/// Number of RoCE packets in all captures.
const PACKETS: usize = 832;

#[test]
fn icrc_holds_by_the_letter_of_the_specification() {
    for_each_packet(|at, frame, _| assert!(frame.icrc_holds(), "{at}"));
}

#[test]
fn icrc_holds_by_seed_with_the_real_identification() {
    for_each_packet(|at, frame, packet| {
        let (identification, dont_fragment) = match frame.repr.ip {
            IpRepr::V4 { identification, dont_fragment, .. } => (identification, dont_fragment),
            IpRepr::V6 { .. } => (0, true),
        };
        let icrc = seed_of(frame).icrc(identification, dont_fragment, packet.without_icrc());
        assert_eq!(icrc, packet.icrc(), "{at}");
    });
}

#[test]
fn icrc_holds_by_solving_for_the_identification() {
    let mut solver = IcrcSolver::new();
    let mut solved = 0;
    for_each_packet(|at, frame, packet| {
        let verdict = seed_of(frame).verify(&mut solver, packet.bytes(), 0);
        let want = match frame.repr.ip {
            IpRepr::V4 { identification: 0, .. } | IpRepr::V6 { .. } => {
                IcrcVerdict::Exact { identification: 0 }
            }
            IpRepr::V4 { identification, .. } => {
                solved += 1;
                IcrcVerdict::Solved { identification }
            }
        };
        assert_eq!(verdict, want, "{at}");
    });
    assert_eq!(solved, SOLVED);
}

#[test]
fn a_damaged_byte_breaks_the_icrc() {
    let mut nth = 0usize;
    for_each_packet(|at, frame, packet| {
        // Each packet has another byte damaged. The ICRC covers all bytes except byte 4 of the BTH.
        nth += 1;
        let i = nth % (packet.bytes().len() - ICRC_LEN);
        let mut bytes = packet.bytes().to_vec();
        bytes[i] ^= 0x10;
        let identification = match frame.repr.ip {
            IpRepr::V4 { identification, .. } => identification,
            IpRepr::V6 { .. } => 0,
        };
        let icrc = seed_of(frame).icrc(identification, true, &bytes[..bytes.len() - ICRC_LEN]);
        assert_eq!(icrc == packet.icrc(), i == 4, "{at} byte {i}");
    });
}

#[test]
fn parsed_packets_emit_the_same_bytes() {
    for_each_packet(|at, frame, packet| {
        let mut buf = [0xa5; urxe_wire::packet::MAX_PACKET_LEN];
        let end = packet.to_repr().emit(packet.payload(), &mut buf).unwrap();
        buf[end..end + ICRC_LEN].copy_from_slice(&packet.icrc().to_le_bytes());
        assert_eq!(buf[..end + ICRC_LEN], *packet.bytes(), "{at}");

        let rebuilt = frame.repr.build(&buf[..end + ICRC_LEN]).unwrap();
        let again = Frame::parse(&rebuilt).unwrap();
        assert_eq!(again, *frame, "{at}: headers and datagram, checksums included");
    });
}

#[test]
fn checksums_hold_and_rxe_leaves_out_those_of_udp_over_ipv4() {
    for_each_packet(|at, frame, _| {
        assert!(frame.ip_checksum_holds(), "{at}");
        if frame.repr.src.is_ipv4() {
            assert!(!frame.repr.udp_checksum, "{at}");
        }
    });
}

#[test]
fn the_captures_hold_every_kind_that_the_programs_send() {
    let mut seen: Vec<Opcode> = Vec::new();
    for_each_packet(|_, _, packet| {
        if !seen.contains(&packet.opcode()) {
            seen.push(packet.opcode());
        }
    });
    use Opcode::*;
    for opcode in [
        RcSendFirst,
        RcSendMiddle,
        RcSendLast,
        RcSendOnly,
        RcWriteOnly,
        RcWriteFirst,
        RcReadRequest,
        RcReadResponseOnly,
        RcAcknowledge,
        RcAtomicAcknowledge,
        RcCompareSwap,
        RcFetchAdd,
        UcSendFirst,
        UdSendOnly,
    ] {
        assert!(seen.contains(&opcode), "{opcode}");
    }
}
