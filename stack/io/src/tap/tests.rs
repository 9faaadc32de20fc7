use std::net::{Ipv4Addr, Ipv6Addr};
use urxe_types::sync::Arc;

use pcap_parser::{Block, PcapBlockOwned, PcapNGOption, PcapNGReader};
use urxe_test_support::capture::blocks;
use urxe_wire::Frame;

use super::*;
use crate::udp::tests::{arrivals, open_with, run_between};
use crate::udp::{UdpConfig, UdpPort};
use urxe_types::port::{SendOutcome, Transmit};

/// A buffer that the test can read.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn bytes(&self) -> Vec<u8> {
        lock(&self.0).clone()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packet of a capture, read by an independent parser.
#[derive(Debug)]
struct Captured {
    interface: u32,
    timestamp_ns: u64,
    frame: Vec<u8>,
    original_len: usize,
    /// The flags option: 1 inbound, 2 outbound.
    direction: Option<Vec<u8>>,
    comment: Option<String>,
}

/// Returns the names of the interfaces, and the packets.
fn read(capture: &[u8]) -> (Vec<String>, Vec<Captured>) {
    let (mut interfaces, mut packets) = (Vec::new(), Vec::new());
    blocks(PcapNGReader::new(1 << 20, capture).unwrap(), |block| match block {
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            assert_eq!(description.if_tsresol, 9);
            interfaces.extend(option(&description.options, 2).map(text));
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            packets.push(Captured {
                interface: packet.if_id,
                timestamp_ns: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                frame: packet.data[..packet.caplen as usize].to_vec(),
                original_len: packet.origlen as usize,
                direction: option(&packet.options, 2),
                comment: option(&packet.options, 1).map(text),
            });
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {}
        _ => panic!("an unexpected block"),
    });
    (interfaces, packets)
}

/// Returns the value of an option, without its padding.
fn option(options: &[PcapNGOption<'_>], code: u16) -> Option<Vec<u8>> {
    let option = options.iter().find(|option| option.code.0 == code)?;
    Some(option.value[..usize::from(option.len)].to_vec())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Returns packets of these lengths (without ICRC). The ICRC of each is made for the identification
/// that `identification` returns for its index.
fn packets(
    from: IpAddr,
    from_port: u16,
    to: IpAddr,
    lengths: &[usize],
    identification: impl Fn(usize) -> u16,
) -> Vec<u8> {
    let seed = IcrcSeed::new(from, from_port, to, ROCE_PORT).unwrap();
    let mut all = Vec::new();
    for (index, &length) in lengths.iter().enumerate() {
        let mut packet: Vec<u8> = (0..length).map(|n| (n * 7 + index) as u8).collect();
        packet.extend([0; 4]);
        assert_eq!(seed.append(identification(index), &mut packet, length), Some(length + 4));
        all.extend(packet);
    }
    all
}

/// Returns `run` as it arrives.
fn arrived<'a>(run: &Run<'a>, hop_limit: u8) -> Datagrams<'a> {
    let Run { from, from_port, to, bytes, segment_size, traffic_class, .. } = *run;
    Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit }
}

/// Returns the identification in a frame, after checking everything that can be checked.
fn checked_identification(captured: &Captured, payload: &[u8]) -> u16 {
    assert_eq!(captured.frame.len(), captured.original_len);
    let frame = Frame::parse(&captured.frame).unwrap();
    assert_eq!(frame.udp_payload, payload);
    assert!(frame.icrc_holds(), "{frame:?}");
    assert!(frame.ip_checksum_holds() && frame.udp_checksum_holds());
    assert!(frame.repr.udp_checksum);
    match frame.repr.ip {
        IpRepr::V4 { identification, dont_fragment, .. } => {
            assert!(dont_fragment);
            identification
        }
        IpRepr::V6 { .. } => 0,
    }
}

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 4));

#[test]
fn a_sent_run_has_identifications_by_index() {
    let output = Output::default();
    let tap = Tap::new(output.clone());
    let bytes = packets(A, 4791, B, &[100, 100, 100, 20], |index| index as u16);
    let run = Run { traffic_class: 0x69, ..run_between(A, B, &bytes, 104) };
    tap.sent(0x0123_4567_89ab_cdef, &run);
    assert_eq!(tap.packets(), 4);
    drop(tap);

    let (interfaces, captured) = read(&output.bytes());
    assert_eq!(interfaces, ["10.1.2.3"]);
    assert_eq!(captured.len(), 4);
    for (index, (captured, payload)) in captured.iter().zip(run.segments()).enumerate() {
        assert_eq!(usize::from(checked_identification(captured, payload)), index);
        assert_eq!((captured.interface, captured.timestamp_ns), (0, 0x0123_4567_89ab_cdef));
        assert_eq!(captured.direction.as_deref(), Some(&[2, 0, 0, 0][..]));
        assert_eq!(captured.comment, None);
        let frame = Frame::parse(&captured.frame).unwrap();
        assert_eq!(
            (frame.repr.src, frame.repr.dst),
            (SocketAddr::new(A, 4791), SocketAddr::new(B, 4791))
        );
        assert!(matches!(frame.repr.ip, IpRepr::V4 { tos: 0x69, ttl: 64, .. }));
        let link = frame.repr.link.unwrap();
        assert_eq!((link.src, link.dst), ([2, 0, 10, 1, 2, 3], [2, 0, 10, 1, 2, 4]));
    }
}

#[test]
fn received_packets_get_the_identification_that_explains_their_icrc() {
    let output = Output::default();
    let tap = Tap::new(output.clone());
    let (port, identifications) = (0xc123, [0, 0xfffe, 0xffff, 3]);
    let bytes = packets(B, port, A, &[60, 60, 60, 60], |index| identifications[index]);
    let datagrams =
        arrived(&Run { from_port: port, traffic_class: 3, ..run_between(B, A, &bytes, 64) }, 63);
    tap.received(7, &datagrams);
    tap.flush().unwrap();

    let (interfaces, captured) = read(&output.bytes());
    assert_eq!(interfaces, ["10.1.2.3"]);
    let found: Vec<u16> = captured
        .iter()
        .zip(datagrams.segments())
        .map(|(captured, payload)| checked_identification(captured, payload))
        .collect();
    assert_eq!(found, identifications);
    for captured in &captured {
        assert_eq!(captured.direction.as_deref(), Some(&[1, 0, 0, 0][..]));
        let frame = Frame::parse(&captured.frame).unwrap();
        assert_eq!(
            (frame.repr.src, frame.repr.dst),
            (SocketAddr::new(B, port), SocketAddr::new(A, 4791))
        );
        assert!(matches!(frame.repr.ip, IpRepr::V4 { tos: 3, ttl: 63, .. }));
    }
}

#[test]
fn a_wrong_icrc_is_remarked() {
    let output = Output::default();
    let tap = Tap::new(output.clone());
    let mut bytes = packets(B, 4791, A, &[60, 60], |index| index as u16);
    // 32 damaged bits in one place: no identification solves the ICRC.
    for byte in &mut bytes[64 + 30..64 + 34] {
        *byte ^= 0xa5;
    }
    let datagrams = arrived(&run_between(B, A, &bytes, 64), 0);
    tap.received(7, &datagrams);
    drop(tap);
    let (_, captured) = read(&output.bytes());
    assert_eq!(captured[0].comment, None);
    assert_eq!(captured[1].comment.as_deref(), Some("the ICRC does not hold"));
    assert!(!Frame::parse(&captured[1].frame).unwrap().icrc_holds());
}

#[test]
fn headers_are_kept_and_payload_is_not() {
    const LOWER: usize = 14 + 20 + 8;
    let output = Output::default();
    let tap = Tap::new(output.clone()).headers_only();
    // RC SEND_ONLY, RC WRITE_ONLY with its RETH, RC ACKNOWLEDGE with its AETH, UD SEND_ONLY with
    // its DETH, an unknown opcode, and less than a BTH.
    let cases: [(u8, usize, usize); 6] = [
        (0x04, 512, 12),
        (0x0a, 512, 28),
        (0x11, 20, 16),
        (0x64, 256, 20),
        (0xff, 99, 12),
        (0x04, 8, 8),
    ];
    for (opcode, length, _) in cases {
        let mut packet = vec![0x5a; length];
        packet[0] = opcode;
        tap.sent(1, &run_between(A, B, &packet, length));
    }
    drop(tap);
    let (_, captured) = read(&output.bytes());
    let kept = captured.iter().map(|packet| (packet.frame.len(), packet.original_len));
    assert!(kept.eq(cases.iter().map(|(_, length, headers)| (LOWER + headers, LOWER + length))));
}

#[test]
fn ipv6_and_several_ports_in_one_capture() {
    let (a, b) = (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6("2001:db8::1:2".parse().unwrap()));
    let output = Output::default();
    let tap = Tap::new(output.clone());
    let bytes = packets(a, 4791, b, &[100, 40], |_| 0);
    let run = Run { traffic_class: 2, ..run_between(a, b, &bytes, 104) };
    tap.sent(1, &run);
    let arrived = arrived(&run, 64);
    tap.received(2, &arrived);
    drop(tap);
    let (interfaces, captured) = read(&output.bytes());
    assert_eq!(interfaces, ["::1", "2001:db8::1:2"]);
    assert_eq!(
        captured.iter().map(|captured| captured.interface).collect::<Vec<_>>(),
        [0, 0, 1, 1]
    );
    for (captured, payload) in captured.iter().zip(run.segments().chain(arrived.segments())) {
        checked_identification(captured, payload);
    }
}

#[test]
fn ethernet_addresses_of_groups() {
    assert_eq!(mac("239.129.2.3".parse().unwrap()), [0x01, 0x00, 0x5e, 0x01, 2, 3]);
    assert_eq!(mac("ff05::1:2".parse().unwrap()), [0x33, 0x33, 0, 1, 0, 2]);
}

#[test]
fn both_ends_of_udp_record_what_passed() {
    let (sender, receiver) = (Output::default(), Output::default());
    let open = |output: &Output| {
        open_with(|config: &mut UdpConfig| {
            config.tap = Some(Arc::new(Tap::new(output.clone())));
        })
    };
    let (a, b): (UdpPort, UdpPort) = (open(&sender), open(&receiver));
    let bytes =
        packets(a.address(), 4791, b.address(), &[1044, 1044, 1044, 16], |index| index as u16);
    let run = run_between(a.address(), b.address(), &bytes, 1048);
    assert_eq!(a.transmit(&run), SendOutcome::Sent);
    arrivals(&b, 4);
    drop((a, b));
    let ((_, sent), (_, received)) = (read(&sender.bytes()), read(&receiver.bytes()));
    for captured in [&sent, &received] {
        assert_eq!(captured.len(), 4);
        for (index, (captured, payload)) in captured.iter().zip(run.segments()).enumerate() {
            assert_eq!(usize::from(checked_identification(captured, payload)), index);
        }
    }
    assert!(sent.iter().zip(&received).all(|(sent, received)| sent.frame == received.frame));
    assert!(sent[0].timestamp_ns <= received[0].timestamp_ns);
}

#[test]
fn a_reader_can_follow() {
    let output = Output::default();
    let tap = Tap::new(output.clone());
    let bytes = packets(A, 4791, B, &[60], |_| 0);
    let run = run_between(A, B, &bytes, 64);
    let start = 1_700_000_000_000_000_000;
    let mut written = Vec::new();
    for after in [0, 1, WRITE_AFTER_NS - 1, WRITE_AFTER_NS, WRITE_AFTER_NS + 1] {
        tap.sent(start + after, &run);
        written.push(read(&output.bytes()).1.len());
    }
    assert_eq!(written, [1, 1, 1, 4, 4]);
    drop(tap);
    assert_eq!(read(&output.bytes()).1.len(), 5);
}

#[test]
fn a_reader_can_follow_after_the_wall_clock_is_set_back() {
    let output = Output::default();
    let tap = Tap::new(output.clone());
    let bytes = packets(A, 4791, B, &[60], |_| 0);
    let run = run_between(A, B, &bytes, 64);
    let hour = 3_600_000_000_000;
    for wall_ns in [2 * hour, hour, hour + WRITE_AFTER_NS] {
        tap.sent(wall_ns, &run);
    }
    assert_eq!(read(&output.bytes()).1.len(), 3);
}

/// Takes some bytes, then fails.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_write_error_ends_the_capture_and_is_reported() {
    let tap = Tap::new(FullDisk(1000));
    let bytes = packets(A, 4791, B, &[600], |_| 0);
    let run = run_between(A, B, &bytes, 604);
    for n in 1..10 {
        tap.sent(n * WRITE_AFTER_NS, &run);
    }
    assert_eq!(tap.packets(), 2);
    assert_eq!(tap.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
}
