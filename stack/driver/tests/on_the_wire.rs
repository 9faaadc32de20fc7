//! The packets that the UDP port puts on the wire, read by a packet socket, and the effect of a
//! small MTU.
//!
//! Needs root in its own network namespace, and `ip` (iproute2):
//!
//! ```text
//! sudo unshare --net cargo test -p urxe-stack --test on_the_wire -- --ignored
//! unshare --map-root-user --net cargo test -p urxe-stack --test on_the_wire -- --ignored
//! ```
//!
//! The second command works for every user if user namespaces are allowed. Loopback takes whole GSO
//! sends. The tests set it to one segment at a time (`gso_max_segs`), so the kernel segments runs
//! as for a device without segmentation offload.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use pcap_parser::{Block, PcapBlockOwned, PcapNGReader};
use socket2::{Domain, Protocol, Socket, Type};
use urxe_stack::port::tap::Tap;
use urxe_stack::port::udp::{
    MAX_RUN_BYTES, PathError, PathErrorReason, ReceiveBuffers, UdpConfig, UdpPort,
};
use urxe_stack::port::{Run, SendOutcome, Transmit};
use urxe_test_support::capture::blocks;
use urxe_test_support::namespace::{ip, own_namespace};
use urxe_wire::{Frame, IcrcSeed, IpRepr, ROCE_PORT};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The namespace's loopback interface, for one test at a time.
struct Loopback {
    _alone: MutexGuard<'static, ()>,
}

impl Loopback {
    fn new(mtu: u32) -> Self {
        let alone = own_namespace();
        ip(&format!("link set lo up mtu {mtu}"));
        ip("link set lo gso_max_segs 1");
        Self { _alone: alone }
    }

    fn takes_runs_whole(&self) {
        ip("link set lo gso_max_segs 65535");
    }
}

/// Opens a socket that receives every packet of the namespace, from the IP header on (packet(7)).
fn watch(address: IpAddr) -> Socket {
    let ethertype: u16 = if address.is_ipv4() { 0x0800 } else { 0x86dd };
    let protocol = Protocol::from(i32::from(ethertype.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))
        .expect("root in this namespace may open a packet socket");
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Returns the next packet to UDP port 4791.
fn next(watch: &mut Socket) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 17];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        let length = watch.read(&mut buffer).expect("the packet is on the wire");
        let is_ours = Frame::parse_ip(&buffer[..length])
            .is_ok_and(|frame| frame.repr.dst.port() == ROCE_PORT);
        if is_ours {
            return buffer[..length].to_vec();
        }
    }
    panic!("no packet to port {ROCE_PORT} within two seconds");
}

fn open(address: IpAddr) -> UdpPort {
    UdpPort::open(UdpConfig::new(address)).unwrap()
}

/// Returns the bytes of a run: packets of `segment_size` bytes and a last one that completes
/// `length`. Each has the ICRC for the identification that is its index.
fn run_bytes(from: IpAddr, to: IpAddr, length: usize, segment_size: usize) -> Vec<u8> {
    let seed = IcrcSeed::new(from, ROCE_PORT, to, ROCE_PORT).unwrap();
    let mut bytes: Vec<u8> = (0..length).map(|n| (n ^ (n >> 8)) as u8).collect();
    for (index, packet) in bytes.chunks_mut(segment_size).enumerate() {
        let end = packet.len() - 4;
        assert_eq!(seed.append(index as u16, packet, end), Some(packet.len()));
    }
    bytes
}

fn run(from: IpAddr, to: IpAddr, bytes: &[u8], segment_size: usize) -> Run<'_> {
    Run { from, from_port: ROCE_PORT, to, bytes, segment_size, traffic_class: 0x69, hop_limit: 0 }
}

/// Returns the frames of a capture.
fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    blocks(PcapNGReader::new(1 << 20, capture).unwrap(), |block| {
        if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
            frames.push(packet.data[..packet.caplen as usize].to_vec());
        }
    });
    frames
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn identifications_are_the_index_with_df_and_icrcs_hold() {
    let _loopback = Loopback::new(65_536);
    let mut watch = watch(A);
    let (a, _b) = (open(A), open(B));
    assert!(a.gso());
    // Each twice, because no state may carry over from one call to the next.
    for (length, segment_size) in [
        (64, 64),
        (64, 64),
        (4 * 1064, 1064),
        (3 * 1064 + 20, 1064),
        (64 * 256, 256),
        (MAX_RUN_BYTES & !3, 4116),
    ] {
        let bytes = run_bytes(A, B, length, segment_size);
        let sent = run(A, B, &bytes, segment_size);
        for _ in 0..2 {
            assert_eq!(a.transmit(&sent), SendOutcome::Sent);
            for (index, packet) in sent.segments().enumerate() {
                let seen = next(&mut watch);
                let frame = Frame::parse_ip(&seen).unwrap();
                assert_eq!(frame.udp_payload, packet);
                let expected = IpRepr::V4 {
                    tos: 0x69,
                    identification: index as u16,
                    dont_fragment: true,
                    ttl: 64,
                };
                assert_eq!(frame.repr.ip, expected, "packet {index} of {length} by {segment_size}");
                assert!(frame.icrc_holds(), "packet {index} of {length} by {segment_size}");
            }
        }
    }
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn icrcs_hold_over_ipv6() {
    let _loopback = Loopback::new(65_536);
    let mut watch = watch(V6);
    for gso in [true, false] {
        let port = UdpPort::open(UdpConfig { gso, ..UdpConfig::new(V6) }).unwrap();
        let bytes = run_bytes(V6, V6, 3 * 1064 + 20, 1064);
        let sent = run(V6, V6, &bytes, 1064);
        assert_eq!(port.transmit(&sent), SendOutcome::Sent);
        for packet in sent.segments() {
            let seen = next(&mut watch);
            let frame = Frame::parse_ip(&seen).unwrap();
            assert_eq!(frame.udp_payload, packet);
            assert!(matches!(frame.repr.ip, IpRepr::V6 { traffic_class: 0x69, hop_limit: 64, .. }));
            assert!(frame.icrc_holds());
        }
    }
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn the_tap_records_the_headers_that_are_on_the_wire() {
    let _loopback = Loopback::new(65_536);
    let mut watch = watch(A);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sent.pcapng");
    let tap = Arc::new(Tap::create(&path).unwrap());
    let a = UdpPort::open(UdpConfig { tap: Some(tap.clone()), ..UdpConfig::new(A) }).unwrap();
    let _b = open(B);
    let bytes = run_bytes(A, B, 5 * 1064 + 20, 1064);
    let sent = run(A, B, &bytes, 1064);
    assert_eq!(a.transmit(&sent), SendOutcome::Sent);
    tap.flush().unwrap();
    let recorded = frames(&fs::read(&path).unwrap());
    assert_eq!(recorded.len(), sent.segments().len());
    for frame in recorded {
        const ETHERNET: usize = 14;
        const IP: usize = 20;
        const UDP_CHECKSUM: usize = IP + 6;
        let mut seen = next(&mut watch);
        let mut expected = frame[ETHERNET..].to_vec();
        // Loopback leaves the UDP checksum to the device, and there is none.
        seen[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
        expected[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
        assert!(expected == seen, "recorded {:02x?}, seen {:02x?}", &expected[..40], &seen[..40]);
    }
}

/// Sends an ICMP message to `victim` that claims that its packet to `peer` exceeded an MTU of `mtu`
/// bytes (RFC 792 type 3 code 4, RFC 4443 type 2).
fn forge_too_big(victim: IpAddr, peer: IpAddr, mtu: u16) {
    const UDP: u8 = 17;
    let ports = [ROCE_PORT.to_be_bytes(), ROCE_PORT.to_be_bytes()].concat();
    let udp = [&ports[..], &1064u16.to_be_bytes(), &[0, 0]].concat();
    let (message, protocol) = match (victim, peer) {
        (IpAddr::V4(victim), IpAddr::V4(peer)) => {
            let ip = [0x45, 0, 4, 0x3c, 0, 0, 0x40, 0, 64, UDP, 0, 0];
            let about = [&ip[..], &victim.octets(), &peer.octets(), &udp].concat();
            let mut message = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &about].concat();
            let sum = message.chunks(2).fold(0u32, |sum, word| {
                sum + u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))
            });
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            (message, Protocol::ICMPV4)
        }
        (IpAddr::V6(victim), IpAddr::V6(peer)) => {
            let ip = [0x60, 0, 0, 0, 4, 0x28, UDP, 64];
            let about = [&ip[..], &victim.octets(), &peer.octets(), &udp].concat();
            // The kernel fills the checksum in.
            let message = [&[2, 0, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &about].concat();
            (message, Protocol::ICMPV6)
        }
        _ => unreachable!("both addresses have one version"),
    };
    let domain = if victim.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    socket.send_to(&message, &std::net::SocketAddr::new(victim, 0).into()).unwrap();
}

/// Returns the path MTU that the kernel keeps for a route, if it keeps one.
fn kept_mtu(from: IpAddr, to: IpAddr) -> Option<u32> {
    let words = format!("route get {to} from {from}");
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_once(" mtu ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_forged_path_mtu_stops_no_packet_unless_the_port_believes_it() {
    let _loopback = Loopback::new(65_536);
    // IPv6 has a minimum MTU of 1280 bytes.
    for (from, to, mtu, packet) in [(A, B, 552, 1064), (V6, V6, 1280, 4136)] {
        for (icmp_mtu, outcome) in [(false, SendOutcome::Sent), (true, SendOutcome::Dropped)] {
            let port = UdpPort::open(UdpConfig { icmp_mtu, ..UdpConfig::new(from) }).unwrap();
            assert_eq!(port.ignores_icmp_mtu(), !icmp_mtu);
            let bytes = run_bytes(from, to, 3 * packet + 20, packet);
            let send = || port.transmit(&run(from, to, &bytes, packet));
            if !icmp_mtu {
                assert_eq!((send(), kept_mtu(from, to)), (SendOutcome::Sent, None));
            }
            forge_too_big(from, to, mtu);
            // The attack succeeds: the kernel keeps the MTU for the route.
            assert_eq!(kept_mtu(from, to), Some(mtu.into()));
            for _ in 0..20 {
                assert_eq!(send(), outcome, "{from}, icmp_mtu {icmp_mtu}");
                forge_too_big(from, to, mtu);
            }
        }
    }
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_packet_over_the_mtu_is_refused_and_the_mtu_is_reported() {
    const MTU: u32 = 1500;
    let loopback = Loopback::new(MTU);
    let check = |from: IpAddr, to: IpAddr, headers: usize| {
        let a = open(from);
        let fits = MTU as usize - headers;
        let outcome = |length, segment_size| {
            let bytes = run_bytes(from, to, length, segment_size);
            a.transmit(&run(from, to, &bytes, segment_size))
        };
        let drained = || {
            let mut errors = Vec::new();
            a.drain_errors(|error| errors.push(error));
            errors
        };
        assert_eq!(outcome(fits, fits), SendOutcome::Sent);
        assert_eq!(outcome(3 * fits, fits), SendOutcome::Sent);
        assert_eq!((a.counters().send_too_big, drained()), (0, vec![]));

        assert_eq!(outcome(fits + 4, fits + 4), SendOutcome::Dropped);
        assert!(a.errors_pending());
        let too_big =
            PathError { peer: to, reporter: None, reason: PathErrorReason::TooBig { mtu: MTU } };
        let errors = drained();
        assert!(!errors.is_empty() && errors.iter().all(|&error| error == too_big), "{errors:?}");
        assert_eq!(a.counters().icmp_too_big, errors.len() as u64);

        assert_eq!(outcome(3 * (fits + 4), fits + 4), SendOutcome::Dropped);
        assert_eq!(a.counters().send_too_big, 2);
        // The refused size does not turn GSO off, and a run that fits is still sent.
        assert!(a.gso());
        drained();
        assert_eq!(outcome(3 * fits, fits), SendOutcome::Sent);
    };
    for whole in [false, true] {
        if whole {
            loopback.takes_runs_whole();
        }
        let _b = open(B);
        check(A, B, 28);
        check(V6, V6, 48);
    }
}

/// Both ends of a veth pair in one namespace. A packet sent on one end arrives at the other, where
/// a packet socket receives it.
struct Veth {
    _alone: Loopback,
}

impl Veth {
    const ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

    fn new() -> Self {
        let pair = Self { _alone: Loopback::new(65_536) };
        ip("link add near type veth peer name far");
        ip("link set far up");
        ip("link set near up gso_max_segs 1");
        ip(&format!("address add {}/64 dev near nodad", Self::ADDRESS));
        pair
    }

    fn interface(&self) -> u32 {
        let index = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        let line = index.lines().find(|line| line.starts_with("fd00")).expect("the address");
        u32::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip("link delete near");
    }
}

/// Groups of both IP versions and of each scope, on the loopback interface and on one with a
/// network. The loopback interface allows no IPv6 groups.
#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn multicast_leaves_with_its_hop_limit_and_reaches_the_members() {
    let pair = Veth::new();
    let interface = pair.interface();
    for (from, group) in [
        (A, "239.1.2.3"),
        (A, "224.0.1.200"),
        (Veth::ADDRESS, "ff02::47"),
        (Veth::ADDRESS, "ff05::47"),
        (Veth::ADDRESS, "ff1e::47"),
    ] {
        let group: IpAddr = group.parse().unwrap();
        let mut watch = watch(from);
        let config = UdpConfig { interface, ..UdpConfig::new(from) };
        let sender = UdpPort::open(config.clone()).unwrap();
        // Two sockets in one process stand for two processes: each gets a copy.
        let members = [(); 2].map(|()| UdpPort::join(group, &config).unwrap());
        let other_group = UdpPort::join(neighbour(group), &config).unwrap();
        let mut buffers = ReceiveBuffers::new(8).unwrap();
        for (hop_limit, on_the_wire) in [(5, 5), (255, 255), (0, 1)] {
            let bytes = run_bytes(from, group, 2 * 1064 + 20, 1064);
            let sent = Run { hop_limit, ..run(from, group, &bytes, 1064) };
            assert_eq!(sender.transmit(&sent), SendOutcome::Sent, "{group}");
            for packet in sent.segments() {
                let seen = next(&mut watch);
                let frame = Frame::parse_ip(&seen).unwrap();
                assert_eq!((frame.udp_payload, frame.repr.dst.ip()), (packet, group));
                assert!(frame.icrc_holds());
                let hops = match frame.repr.ip {
                    IpRepr::V4 { ttl, .. } => ttl,
                    IpRepr::V6 { hop_limit, .. } => hop_limit,
                };
                assert_eq!(hops, on_the_wire, "{group}");
            }
            for member in &members {
                let mut got = Vec::new();
                let start = Instant::now();
                while got.len() < bytes.len() && start.elapsed() < Duration::from_secs(2) {
                    member.receive(&mut buffers).unwrap();
                    for datagrams in buffers.iter() {
                        assert_eq!((datagrams.from, datagrams.to), (from, group));
                        assert_eq!(
                            (datagrams.hop_limit, datagrams.traffic_class),
                            (on_the_wire, 0x69)
                        );
                        got.extend_from_slice(datagrams.bytes);
                    }
                }
                assert!(got == bytes, "{group}: {} of {} bytes", got.len(), bytes.len());
            }
            assert_eq!(other_group.receive(&mut buffers).unwrap(), 0);
        }
        members[0].leave(from);
        let bytes = run_bytes(from, group, 64, 64);
        assert_eq!(sender.transmit(&run(from, group, &bytes, 64)), SendOutcome::Sent);
        let start = Instant::now();
        while members[1].receive(&mut buffers).unwrap() == 0 {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{group}: nothing came to who stayed"
            );
        }
        assert_eq!(members[0].receive(&mut buffers).unwrap(), 0, "{group}: it has left");
    }
    drop(pair);
}

/// Returns the group with the next number.
fn neighbour(group: IpAddr) -> IpAddr {
    match group {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() + 1)),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() + 1)),
    }
}
