//! Tests over loopback, unprivileged. Every port has its own address, so tests of several processes
//! do not interfere.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU32;

use urxe_wire::{IcrcSolver, IcrcVerdict};

use super::*;
use crate::sys::steering;
use urxe_types::port::Datagrams;

/// Returns addresses in 127.64.0.0/10, starting at a point that differs by process.
pub(crate) fn loopback_address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let host = std::process::id().wrapping_mul(61).wrapping_add(nth) % (1 << 22);
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 0).to_bits() + host))
}

/// Opens a port on a loopback address, with the configuration that `change` changes.
pub(crate) fn open_with(change: impl Fn(&mut UdpConfig)) -> UdpPort {
    for _ in 0..100 {
        let mut config = UdpConfig::new(loopback_address());
        change(&mut config);
        match UdpPort::open(config) {
            Err(OpenPortError::AddressInUse { .. }) => {}
            result => return result.unwrap(),
        }
    }
    panic!("no loopback address has port 4791 free");
}

fn open() -> UdpPort {
    open_with(|_| {})
}

/// Returns a run from port 4791 with traffic class 0.
pub(crate) fn run_between(from: IpAddr, to: IpAddr, bytes: &[u8], segment_size: usize) -> Run<'_> {
    Run { from, from_port: ROCE_PORT, to, bytes, segment_size, traffic_class: 0, hop_limit: 0 }
}

fn run<'a>(from: &UdpPort, to: IpAddr, bytes: &'a [u8], segment_size: usize) -> Run<'a> {
    run_between(from.address(), to, bytes, segment_size)
}

/// Returns `length` bytes without repetition.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .take(length)
        .collect()
}

/// A datagram with a copy of its payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arrived {
    from: IpAddr,
    from_port: u16,
    to: IpAddr,
    segments: Vec<Vec<u8>>,
    traffic_class: u8,
    hop_limit: u8,
}

impl From<Datagrams<'_>> for Arrived {
    fn from(datagrams: Datagrams<'_>) -> Self {
        Self {
            from: datagrams.from,
            from_port: datagrams.from_port,
            to: datagrams.to,
            segments: datagrams.segments().map(<[u8]>::to_vec).collect(),
            traffic_class: datagrams.traffic_class,
            hop_limit: datagrams.hop_limit,
        }
    }
}

/// Receives until `packets` packets have arrived, at most two seconds.
pub(crate) fn arrivals(port: &UdpPort, packets: usize) -> Vec<Arrived> {
    let mut buffers = ReceiveBuffers::new(3).unwrap();
    let mut all = Vec::new();
    let deadline = clock::now() + Duration::from_secs(2);
    while all.iter().map(|arrived: &Arrived| arrived.segments.len()).sum::<usize>() < packets {
        assert!(clock::now() < deadline, "only {all:?} arrived");
        let mut descriptor = [PollFd::new(port, PollFlags::IN)];
        poll(&mut descriptor, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap();
        let count = port.receive(&mut buffers).unwrap();
        assert_eq!(buffers.iter().count(), count);
        all.extend(buffers.iter().map(Arrived::from));
    }
    assert_eq!(port.receive(&mut buffers).unwrap(), 0);
    all
}

fn packets(arrived: &[Arrived]) -> Vec<Vec<u8>> {
    arrived.iter().flat_map(|arrived| arrived.segments.clone()).collect()
}

/// Returns the errors queued at `port`. Waits for the first.
fn path_errors(port: &UdpPort) -> Vec<PathError> {
    let mut descriptor = [PollFd::new(port, PollFlags::empty())];
    poll(&mut descriptor, Some(&Timespec { tv_sec: 2, tv_nsec: 0 })).unwrap();
    assert!(descriptor[0].revents().contains(PollFlags::ERR));
    let mut errors = Vec::new();
    assert_eq!(port.drain_errors(|error| errors.push(error)), errors.len());
    assert!(!port.errors_pending());
    errors
}

#[test]
fn the_traffic_class_is_that_of_the_run_whatever_the_sockets_have() {
    let (a, b) = (open(), open());
    let bytes = pattern(100);
    for traffic_class in [0, config::USUAL_TRAFFIC_CLASS, 0x68, 0, 3] {
        let one = Run { traffic_class, ..run(&a, b.address(), &bytes, 100) };
        assert_eq!(a.transmit(&one), SendOutcome::Sent);
        assert_eq!(arrivals(&b, 1)[0].traffic_class, traffic_class);
    }
}

#[test]
fn one_packet_arrives_with_its_addresses() {
    let (a, b) = (open(), open());
    let bytes = pattern(1052);
    let one = Run { traffic_class: 0xb9, ..run(&a, b.address(), &bytes, 1052) };
    assert_eq!(a.transmit(&one), SendOutcome::Sent);
    let expected = Arrived {
        from: a.address(),
        from_port: ROCE_PORT,
        to: b.address(),
        segments: vec![bytes],
        traffic_class: 0xb9,
        hop_limit: 64,
    };
    assert_eq!(arrivals(&b, 1), [expected]);
    let (sent, received) = (a.counters(), b.counters());
    assert_eq!((sent.sent_runs, sent.sent_packets), (1, 1));
    assert_eq!(
        (received.received_datagrams, received.received_packets, received.received_bytes),
        (1, 1, 1052)
    );
    assert_eq!(received.socket_dropped, Some(0));
}

#[test]
fn a_run_arrives_as_equal_segments_in_order() {
    let (a, b) = (open(), open());
    assert!(a.gso() && b.gro(), "this kernel has neither GSO nor GRO");
    for (length, segment_size) in [
        (4 * 1064, 1064),
        (3 * 1064 + 20, 1064),
        (MAX_RUN_SEGMENTS * 64, 64),
        (MAX_RUN_BYTES, 4116),
        (4117, 4116),
        (2 * 16, 16),
    ] {
        let bytes = pattern(length);
        let sent = run(&a, b.address(), &bytes, segment_size);
        assert_eq!(a.transmit(&sent), SendOutcome::Sent, "{length} by {segment_size}");
        let arrived = arrivals(&b, sent.segments().len());
        assert_eq!(arrived.len(), 1, "loopback hands the run over merged");
        assert!(packets(&arrived).iter().eq(sent.segments()), "{length} by {segment_size}");
    }
    assert_eq!(b.counters().received_datagrams, 6);
    assert_eq!(b.counters().received_packets, a.counters().sent_packets);
}

#[test]
fn a_receiver_without_gro_gets_the_packets_singly() {
    let (a, b) = (open(), open_with(|config| config.gro = false));
    let bytes = pattern(3 * 1064 + 20);
    let sent = run(&a, b.address(), &bytes, 1064);
    assert_eq!(a.transmit(&sent), SendOutcome::Sent);
    let arrived = arrivals(&b, 4);
    assert_eq!(arrived.len(), 4);
    assert!(packets(&arrived).iter().eq(sent.segments()));
}

#[test]
fn without_gso_ipv4_sends_single_packets_only() {
    let (a, b) = (open_with(|config| config.gso = false), open());
    assert_eq!(a.max_run_segments(), 1);
    let bytes = pattern(200);
    assert_eq!(a.transmit(&run(&a, b.address(), &bytes, 100)), SendOutcome::Dropped);
    assert_eq!(a.transmit(&run(&a, b.address(), &bytes, 200)), SendOutcome::Sent);
    assert_eq!(packets(&arrivals(&b, 1)), [bytes]);
    assert_eq!(a.counters().sent_over_limit, 1);
}

/// One address for all cases, because ::1 is the only IPv6 loopback address.
#[test]
fn ipv6_loopback() {
    let local = IpAddr::V6(Ipv6Addr::LOCALHOST);
    for gso in [true, false] {
        let deadline = clock::now() + Duration::from_secs(20);
        let port = loop {
            match UdpPort::open(UdpConfig { gso, ..UdpConfig::new(local) }) {
                // A test of another process has the address.
                Err(OpenPortError::AddressInUse { .. }) if clock::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                result => break result.unwrap(),
            }
        };
        assert_eq!(port.max_run_segments(), MAX_RUN_SEGMENTS);
        // The second case has the traffic class of the socket.
        for (length, segment_size, traffic_class) in [
            (1052, 1052, 0),
            (5 * 1064 + 24, 1064, config::USUAL_TRAFFIC_CLASS),
            (64 * 64, 64, 0xb9),
            (MAX_RUN_BYTES, 4116, 0),
        ] {
            let bytes = pattern(length);
            let sent = Run { traffic_class, ..run(&port, local, &bytes, segment_size) };
            assert_eq!(
                port.transmit(&sent),
                SendOutcome::Sent,
                "{length} by {segment_size}, gso {gso}"
            );
            let arrived = arrivals(&port, sent.segments().len());
            assert!(packets(&arrived).iter().eq(sent.segments()));
            for datagrams in &arrived {
                assert_eq!((datagrams.from, datagrams.to), (local, local));
                assert_eq!((datagrams.traffic_class, datagrams.hop_limit), (traffic_class, 64));
            }
        }
        assert_eq!(
            port.transmit(&run(&port, IpAddr::V4(Ipv4Addr::LOCALHOST), b"x", 1)),
            SendOutcome::Dropped
        );
        assert_eq!(port.counters().sent_wrong_family, 1);
    }
}

#[test]
fn an_ipv4_mapped_peer_is_an_ipv4_peer() {
    let (a, b) = (open(), open());
    let IpAddr::V4(v4) = b.address() else { panic!("the tests' addresses are IPv4") };
    let mapped = IpAddr::V6(v4.to_ipv6_mapped());
    assert_eq!(a.transmit(&run(&a, mapped, b"to a mapped address", 64)), SendOutcome::Sent);
    assert_eq!(arrivals(&b, 1)[0].to, b.address());
    assert_eq!(
        a.transmit(&run(&a, IpAddr::V6(Ipv6Addr::LOCALHOST), b"x", 64)),
        SendOutcome::Dropped
    );
    assert_eq!(a.counters().sent_wrong_family, 1);
}

#[test]
fn runs_beyond_the_limits_are_dropped_and_counted() {
    let (a, b) = (open(), open());
    let bytes = pattern(MAX_RUN_BYTES + 1);
    for (length, segment_size) in [
        (0, 100),
        (100, 0),
        (MAX_RUN_SEGMENTS * 8 + 1, 8),
        (MAX_RUN_BYTES + 1, 4116),
        (MAX_RUN_BYTES + 1, 70_000),
    ] {
        let outcome = a.transmit(&run(&a, b.address(), &bytes[..length], segment_size));
        assert_eq!(outcome, SendOutcome::Dropped, "{length} by {segment_size}");
    }
    assert_eq!(a.counters().sent_over_limit, 5);
    let foreign = run(&b, b.address(), &bytes[..100], 100);
    assert_eq!(a.transmit(&foreign), SendOutcome::Dropped);
    assert_eq!(
        a.transmit(&Run { from_port: 1, ..run(&a, b.address(), b"x", 1) }),
        SendOutcome::Dropped
    );
    assert_eq!(a.counters().sent_wrong_source, 2);
    assert_eq!(a.counters().sent_runs, 0);
    assert_eq!(b.receive(&mut ReceiveBuffers::new(1).unwrap()).unwrap(), 0);
}

#[test]
fn empty_datagrams_are_dropped_and_counted() {
    let (a, b) = (open(), open());
    let to = RawAddress::new(SocketAddr::new(b.address(), ROCE_PORT));
    message::send(&a, &to, &Control::EMPTY, &[]).unwrap();
    assert_eq!(a.transmit(&run(&a, b.address(), b"after it", 64)), SendOutcome::Sent);
    assert_eq!(packets(&arrivals(&b, 1)), [b"after it"]);
    assert_eq!(b.counters().received_empty, 1);
}

#[test]
fn a_taken_address_gives_an_error_that_names_a_free_one() {
    let a = open();
    let error = UdpPort::open(UdpConfig::new(a.address())).unwrap_err();
    let OpenPortError::AddressInUse { address, free: Some(free), .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(address, a.address());
    assert_eq!(
        error.to_string(),
        format!(
            "UDP port 4791 of {address} is taken by another process or by the kernel's rdma_rxe; \
             {free} is free"
        )
    );
    assert!(free.is_loopback() && free != address);
}

#[test]
fn addresses_that_cannot_be_bound_give_errors_that_say_why() {
    let open = |address: &str, scope_id| {
        UdpPort::open(UdpConfig { scope_id, ..UdpConfig::new(address.parse().unwrap()) })
            .unwrap_err()
    };
    // 192.0.2.0/24 is for documentation (RFC 5737): no host has such an address.
    let address = "192.0.2.1".parse().unwrap();
    assert_eq!(open("192.0.2.1", 0), OpenPortError::NoSuchAddress { address });
    assert!(open("192.0.2.1", 0).to_string().starts_with("no interface has the address 192.0.2.1"));
    for address in ["0.0.0.0", "::", "224.0.0.5", "ff02::1", "255.255.255.255", "::ffff:0.0.0.0"] {
        let error = open(address, 1);
        assert!(matches!(error, OpenPortError::NotUnicast { .. }), "{address}: {error:?}");
    }
    let address = "fe80::1".parse().unwrap();
    assert_eq!(open("fe80::1", 0), OpenPortError::ScopeMissing { address });
    let error = open("fe80::1", 0x7fff_0000);
    assert!(
        matches!(error, OpenPortError::NoSuchScope { .. } | OpenPortError::FamilyMissing { .. }),
        "{error:?}"
    );
}

#[test]
fn a_packet_larger_than_the_path_is_counted_and_reported() {
    // Loopback's MTU holds every possible datagram, so this one exceeds the largest. A test in a
    // namespace (tests/on_the_wire.rs) changes the MTU, and checks that the path's MTU counts and
    // is reported.
    let (a, b) = (open(), open());
    let bytes = pattern(65_508);
    let to = RawAddress::new(SocketAddr::new(b.address(), ROCE_PORT));
    let outcome =
        a.send(&a.socket, 1, || message::send(&a.socket, &to, &Control::EMPTY, &bytes).map(|_| 1));
    assert_eq!(outcome, SendOutcome::Dropped);
    assert_eq!(a.counters().send_too_big, 1);
    assert!(a.errors_pending());
    a.drain_errors(|_| {});
    assert!(!a.errors_pending());
}

#[test]
fn a_closed_port_is_reported_with_the_peers_address() {
    let (a, other) = (open(), open());
    let gone = open().address();
    assert_eq!(a.transmit(&run(&a, gone, b"closed port", 64)), SendOutcome::Sent);
    let errors = path_errors(&a);
    let expected =
        PathError { peer: gone, reporter: Some(gone), reason: PathErrorReason::PortUnreachable };
    assert_eq!(errors, [expected]);
    assert_eq!(a.counters().icmp_port_unreachable, 1);

    // The error of a packet to one peer fails neither sends to another nor receives.
    for n in 0..10_u8 {
        assert_eq!(a.transmit(&run(&a, gone, b"closed port", 64)), SendOutcome::Sent);
        assert_eq!(a.transmit(&run(&a, other.address(), &[n; 30], 64)), SendOutcome::Sent);
        assert_eq!(a.transmit(&run(&a, gone, b"closed port", 64)), SendOutcome::Sent);
        assert_eq!(a.receive(&mut ReceiveBuffers::new(1).unwrap()).unwrap(), 0);
        assert!(a.errors_pending());
    }
    assert_eq!(packets(&arrivals(&other, 10)), (0..10).map(|n| vec![n; 30]).collect::<Vec<_>>());
    let errors = path_errors(&a);
    assert!(!errors.is_empty() && errors.iter().all(|&error| error == expected), "{errors:?}");
    assert_eq!(a.counters().icmp_port_unreachable, 1 + errors.len() as u64);
}

#[test]
fn what_the_receive_buffer_cannot_hold_is_counted() {
    let (a, b) = (open(), open_with(|config| config.receive_buffer = Some(4096)));
    let bytes = pattern(4116);
    for _ in 0..100 {
        assert_eq!(a.transmit(&run(&a, b.address(), &bytes, 4116)), SendOutcome::Sent);
    }
    let mut buffers = ReceiveBuffers::new(ReceiveBuffers::MAX).unwrap();
    let mut received = 0;
    while let count @ 1.. = b.receive(&mut buffers).unwrap() {
        received += count;
    }
    assert!(received < 100);
    assert_eq!(b.counters().socket_dropped, Some(100 - received as u32));
}

#[test]
fn buffer_sizes_are_those_granted() {
    let small = open_with(|config| {
        config.receive_buffer = Some(50_000);
        config.send_buffer = Some(30_000);
    });
    assert_eq!((small.receive_buffer(), small.send_buffer()), (100_000, 60_000));
    let large = open();
    let limit = |name| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
        text.trim().parse::<usize>().unwrap()
    };
    assert_eq!(large.receive_buffer(), 2 * limit("rmem_max").min(8 << 20));
    assert_eq!(large.send_buffer(), 2 * limit("wmem_max").min(4 << 20));
}

#[test]
fn the_socket_is_close_on_exec_and_does_not_block() {
    let port = open();
    assert!(rustix::io::fcntl_getfd(&port).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert!(rustix::fs::fcntl_getfl(&port).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    assert_eq!(port.receive(&mut ReceiveBuffers::new(1).unwrap()).unwrap(), 0);
}

#[test]
fn a_full_send_buffer_gives_up_within_milliseconds() {
    let a = open();
    let mut calls = 0;
    let before = clock::now();
    let outcome = a.send(&a.socket, 1, || {
        calls += 1;
        Err(Errno::AGAIN)
    });
    let took_ns = clock::now().since_ns(before);
    assert_eq!(outcome, SendOutcome::Dropped);
    // The socket itself has room, so every poll returns at once.
    assert!(calls > 1 && took_ns >= 2_000_000, "{calls} calls in {took_ns} ns");
    let counters = a.counters();
    assert_eq!((counters.send_buffer_full, counters.sent_runs), (1, 0));
    assert_eq!(counters.send_waits, calls);
}

#[test]
fn a_device_that_refuses_gso_ends_gso() {
    let a = open();
    assert_eq!(a.max_run_segments(), MAX_RUN_SEGMENTS);
    assert_eq!(a.send(&a.socket, 3, || Err(Errno::IO)), SendOutcome::Dropped);
    assert!(!a.gso());
    assert_eq!(a.max_run_segments(), 1);
    assert_eq!(a.counters().gso_refused, 1);
    assert_eq!(a.send(&a.socket, 1, || Err(Errno::IO)), SendOutcome::Dropped);
    assert_eq!(a.counters().send_failed, 1);
}

#[test]
fn errors_of_a_send_have_their_counters() {
    let a = open();
    for (errno, segments) in [
        (Errno::MSGSIZE, 1),
        (Errno::INVAL, 2),
        (Errno::NETUNREACH, 1),
        (Errno::PERM, 1),
        (Errno::NOBUFS, 1),
        (Errno::INVAL, 1),
    ] {
        assert_eq!(a.send(&a.socket, segments, || Err(errno)), SendOutcome::Dropped);
    }
    let counters = a.counters();
    assert_eq!((counters.send_too_big, counters.send_unreachable, counters.send_failed), (2, 1, 3));
    assert!(a.gso());
}

/// The BPF program decides as `Destination::of` does, and otherwise by the slot of the QPN.
#[test]
fn steering_by_the_destination_qpn_and_by_the_identifiers_of_mads() {
    use urxe_wire::mad::{Attribute, CM_CLASS, CommId, Destination, METHOD_SEND};
    const MEMBERS: u32 = 6;
    let address = SocketAddr::new(loopback_address(), ROCE_PORT);
    let members: Vec<Socket> = (0..MEMBERS)
        .map(|_| {
            let socket =
                Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM.nonblocking(), None)
                    .unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket
        })
        .collect();
    steering::attach(&members[2]).unwrap();

    let a = open();
    let arrives_at = |packet: &[u8], what: &str| -> u32 {
        assert_eq!(a.transmit(&run(&a, address.ip(), packet, packet.len())), SendOutcome::Sent);
        let mut slots = [message::ReceiveSlot::new().unwrap()];
        let got: Vec<u32> = (0..)
            .zip(&members)
            .filter(|(_, member)| message::receive(member, &mut slots) == Ok(1))
            .map(|(index, _)| index)
            .collect();
        assert_eq!(got.len(), 1, "{what}");
        got[0]
    };
    for (qpn, bth_byte_4, expected) in
        [(0x00_0011_u32, 0xc0, 1), (0x03_ffff, 0, 1), (0x04_0000, 0xff, 2), (0x12_d234, 0x40, 5)]
    {
        let mut packet = pattern(60);
        packet[4..8].copy_from_slice(&(qpn | bth_byte_4 << 24).to_be_bytes());
        assert_eq!(arrives_at(&packet, "a QPN"), expected, "QPN {qpn:#x}");
    }
    let of_cm = Attribute::ALL.map(|attribute| (CM_CLASS, METHOD_SEND, attribute.id()));
    for (class, method, attribute) in
        of_cm.into_iter().chain([(4, 1, 0x10), (4, 0x81, 0x10), (0x81, 0xff, 1)])
    {
        let mut packet = pattern(12 + 8 + 256 + 4);
        packet[4..8].copy_from_slice(&1_u32.to_be_bytes());
        let mad = &mut packet[20..276];
        mad[..4].copy_from_slice(&[1, class, 2, method]);
        mad[8..12].copy_from_slice(&CommId::with_slot(3, 9).0.to_be_bytes());
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[24..28].copy_from_slice(&CommId::with_slot(1, 7).0.to_be_bytes());
        mad[28..32].copy_from_slice(&CommId::with_slot(4, 8).0.to_be_bytes());
        let expected = match Destination::of(mad).unwrap() {
            Destination::Slot(slot) => steering::slot_socket(slot),
            Destination::Service(_) | Destination::Anyone => steering::COMMON_SOCKET,
            // The receiving process forwards such a MAD to all.
            Destination::Everyone => steering::slot_socket(0),
        };
        let what = format!("class {class:#x} method {method:#x} attribute {attribute:#x}");
        assert_eq!(arrives_at(&packet, &what), expected, "{what}");
    }
    for length in [1, 7, 12, 41] {
        let mut packet = vec![0; length];
        if let Some(qpn) = packet.get_mut(7) {
            *qpn = 1;
        }
        assert_eq!(arrives_at(&packet, "short"), 0, "{length} bytes");
    }
}

/// A socket of a group never sends, so only a forged message can name it.
#[test]
fn a_forged_icmp_error_for_a_group_leaves_its_socket_unreadable() {
    use socket2::{Domain, Protocol, Type};
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = Ipv4Addr::new(239, 221, high, low);
    let member = UdpPort::join(group.into(), &UdpConfig::new(Ipv4Addr::LOCALHOST.into())).unwrap();
    let Ok(icmp) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
        return eprintln!("skipped: raw sockets need CAP_NET_RAW");
    };
    // Port unreachable (RFC 792), for a datagram of 40 bytes from the group to 127.0.0.1.
    let mut message =
        [&[3, 3, 0, 0, 0, 0, 0, 0][..], &[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
    message.extend([group.octets(), [127, 0, 0, 1]].concat());
    message.extend([ROCE_PORT, ROCE_PORT, 20, 0].map(u16::to_be_bytes).concat());
    let words = message.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    message[2..4].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    icmp.send_to(&message, &SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let mut polled = [PollFd::new(&member, PollFlags::IN)];
    poll(&mut polled, Some(&clock::timespec(100_000_000))).unwrap();
    assert_eq!(polled[0].revents(), PollFlags::empty());
}

/// Counts the observed packets with an ICRC made for their place in the run.
#[derive(Debug, Default)]
struct Verifier(AtomicU32);

impl Verifier {
    fn verify<'p>(
        &self,
        (from, from_port, to): (IpAddr, u16, IpAddr),
        packets: impl Iterator<Item = &'p [u8]>,
    ) {
        let seed = IcrcSeed::new(from, from_port, to, ROCE_PORT).unwrap();
        for (index, packet) in packets.enumerate() {
            let verdict = seed.verify(&mut IcrcSolver::new(), packet, index as u16);
            assert_eq!(verdict, IcrcVerdict::Exact { identification: index as u16 });
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl PacketTap for Verifier {
    fn sent(&self, _: u64, run: &Run<'_>) {
        self.verify((run.from, run.from_port, run.to), run.segments());
    }

    fn received(&self, _: u64, datagrams: &Datagrams<'_>) {
        let flow = (datagrams.from, datagrams.from_port, datagrams.to);
        self.verify(flow, datagrams.segments());
    }
}

#[test]
fn captures_of_packets_in_memory_have_their_icrcs() {
    let tap = Arc::new(Verifier::default());
    let port = open_with(|config| config.tap = Some(tap.clone()));
    let (from, to) = (port.address(), IpAddr::from([127, 0, 0, 1]));
    // Three SENDs (opcode 4), the last one shorter. Their ICRCs are zeros.
    let mut bytes = vec![0; 44 + 44 + 20];
    [0, 44, 88].into_iter().for_each(|at| bytes[at] = 4);
    let run = run(&port, to, &bytes, 44);
    assert!(port.record_sent(&run));
    let sent = port.send_in_memory(&run, 3, || {
        assert_eq!(tap.0.load(Ordering::Relaxed), 6, "the response may arrive from now on");
        Ok::<_, Infallible>(SendOutcome::Sent)
    });
    assert_eq!(sent, Ok(SendOutcome::Sent));
    let (from_port, traffic_class, hop_limit) = (run.from_port, 0, 64);
    let (bytes, segment_size) = (&bytes[..], 44);
    let arrived = Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit };
    port.record_received(&arrived);
    assert_eq!(tap.0.load(Ordering::Relaxed), 9);
}
