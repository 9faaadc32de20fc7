//! Datagrams of real kernels (`ibv_ud_pingpong` of Linux 6.12 and 6.1, `wire/testdata`) as the oracle for those of this stack.

use std::net::IpAddr;
use std::path::Path;

use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator};
use urxe_tests::town::{Carried, HOPS, QKEY, Town, payload, to_qp};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Frame, IcrcSeed, IpRepr, Opcode, PacketView, ROCE_PORT};

/// Length of the Ethernet header of the captures.
const ETHERNET_LEN: usize = 14;

fn frames() -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/ud_pingpong.pcap");
    let bytes = std::fs::read(path).unwrap();
    let mut reader = LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap();
    let mut frames = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(block) = block {
                    frames.push(block.data.to_vec());
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Calls `check` with every datagram of the capture: its frame, and its packet from BTH to ICRC.
fn for_each_datagram(mut check: impl FnMut(&[u8], &Frame<'_>, &PacketView<'_>)) {
    let mut count = 0;
    for bytes in frames() {
        let Ok(frame) = Frame::parse(&bytes) else { continue };
        if frame.repr.dst.port() != ROCE_PORT {
            continue;
        }
        let packet = PacketView::parse(frame.udp_payload).unwrap();
        // What goes to queue pair 1 is the kernel's management traffic.
        if packet.opcode() == Opcode::UdSendOnly && packet.dest_qp().value() != 1 {
            check(&bytes, &frame, &packet);
            count += 1;
        }
    }
    assert!(count >= 4, "{count} datagrams are too few to prove anything");
}

/// With the numbers that no two runs share (queue pairs, PSN, Q_Key) put in, what this stack sends is what the kernel sent.
#[test]
fn a_datagram_is_byte_for_byte_the_kernels() {
    for_each_datagram(|_, frame, packet| {
        let mut town = Town::new(2);
        let ah = town.houses[0].ah(town.houses[1].address);
        let to = to_qp(ah, town.houses[1].qp.qpn(), QKEY);
        // The kernel's link had a larger path MTU than the town's.
        town.post_send(0, 1, to, &packet.payload()[..packet.payload_len().min(1024)]).unwrap();
        let runs = town.on_the_wire();
        let headers = packet.info().headers_len();
        let mut ours = runs[0].bytes[..runs[0].bytes.len() - ICRC_LEN].to_vec();
        let captured = &frame.udp_payload[..ours.len()];
        // Destination queue pair, PSN, Q_Key, source queue pair.
        for numbers in [5..8, 9..12, 12..16, 17..20] {
            ours[numbers.clone()].copy_from_slice(&captured[numbers]);
        }
        assert_eq!(ours[..headers], captured[..headers]);
        assert_eq!(ours, captured);
    });
}

/// The forty bytes in front of a received message hold the very IP header that the kernel sent, its identification included, which
/// no socket shows: it follows from the ICRC.
#[test]
fn the_header_in_front_of_a_message_is_the_one_that_was_on_the_wire() {
    for_each_datagram(|bytes, frame, packet| {
        let (from, to): (IpAddr, IpAddr) = (frame.repr.src.ip(), frame.repr.dst.ip());
        let IpRepr::V4 { tos, identification, dont_fragment, ttl } = frame.repr.ip else {
            panic!("the capture is of IPv4");
        };
        assert!(dont_fragment);
        let mut town = Town::of([to].into_iter());
        town.post_recv(0, 1, 4096 + 40);
        let mut datagram = frame.udp_payload.to_vec();
        datagram[5..8].copy_from_slice(&town.houses[0].qp.qpn().value().to_be_bytes()[1..]);
        datagram[12..16].copy_from_slice(&QKEY.value().to_be_bytes());
        let end = datagram.len() - ICRC_LEN;
        let from_port = frame.repr.src.port();
        let seed = IcrcSeed::new(from, from_port, to, ROCE_PORT).unwrap();
        seed.append(identification, &mut datagram, end).unwrap();
        let segment_size = datagram.len();
        let carried =
            Carried { from, from_port, to, bytes: datagram, segment_size, hop_limit: 0, traffic_class: tos };
        town.deliver(&carried);
        let (completion, received) = town.received(0).expect("taken");
        assert_eq!(completion.src_qp, packet.deth().unwrap().src_qp);
        assert_eq!(payload(&received), packet.payload());
        assert_eq!(received[..20], [0; 20]);
        let mut sent = bytes[ETHERNET_LEN..ETHERNET_LEN + 20].to_vec();
        // The wire of this test says another time to live; the checksum follows it (RFC 1624).
        let sum = u32::from(u16::from_be_bytes([sent[10], sent[11]]));
        let more = sum + (u32::from(ttl) << 8) + 0xffff - (u32::from(HOPS) << 8);
        let folded = (more & 0xffff) + (more >> 16);
        sent[10..12].copy_from_slice(&((folded & 0xffff) as u16 + (folded >> 16) as u16).to_be_bytes());
        sent[8] = HOPS;
        assert_eq!(received[20..40], sent);
    });
}
