//! Attackers that send over the sockets of a network namespace. Both ends of a connection are
//! devices of this process, which exchange their packets through the kernel.
//!
//! - The *off-path* attacker forges the peer's address and port, without knowledge of the PSNs.
//! - The attacker *beside the path* reads the packets of the connection and adds others with the
//!   same numbers. It cannot remove a packet.
//! - The *flood* comes from many addresses as fast as one thread sends, to queue pairs and to the
//!   connection manager.
//!
//! `URXE_FORGED_SENT` is the number of packets of each attacker.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use urxe::{
    Access, Completion, CompletionQueue, ConnectOptions, Device, MemoryRegion, ProtectionDomain,
    QpEndpoint, QpState, QueuePair, RecvRequest, RemoteRegion, SendRequest, WcStatus,
};
use urxe_stack::qp::attr::QpType;
use urxe_stack::rng::Rng;
use urxe_test_support::namespace::{ip, own_namespace};
use urxe_test_support::wire::PacketRun;
use urxe_wire::{Frame, IpRepr, ROCE_PORT};

use super::forge::{Hostile, forge};
use super::on_path::{Known, on_path};
use super::{MEMORY, OPEN, number, seed};

/// The packets of each attacker in CI.
const FORGED: u64 = 20_000;
/// The packets after which a paced attacker sleeps for a millisecond.
const BURST: u64 = 32;
/// The distance of the off-path attacker's PSNs from those of the connection.
const PLAUSIBLE: u32 = 1 << 20;
/// The time after which an operation counts as lost. It is longer than all retransmissions.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
/// The most bytes that the process may grow under a flood: 64 MiB.
const GROWTH: u64 = 64 << 20;
/// The hops of forged packets, by which the attacker beside the path knows its own ones.
const HOPS: u8 = 77;
/// The addresses of the ends.
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

/// One end of a connection.
struct End {
    address: Ipv4Addr,
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    /// No attacker knows the key of this region.
    closed: MemoryRegion,
    /// The attacker beside the path reads the key of this region.
    open: MemoryRegion,
}

impl End {
    fn new(address: Ipv4Addr) -> Self {
        // The packets take the sockets, not the way within the process.
        let device = Device::builder().direct(false).open_address(address).expect("a device");
        let pd = device.alloc_pd().expect("a protection domain");
        let cq = device.create_cq(64).expect("a completion queue");
        let qp = pd.queue_pair(&cq).signal_all(true).create().expect("a queue pair");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let closed = pd.allocate(MEMORY, access).expect("a region");
        let open = pd.allocate(OPEN.len(), access).expect("a region");
        Self { address, device, pd, cq, qp, closed, open }
    }

    /// Replaces the queue pair by a new one.
    fn renew(&mut self) {
        self.qp = self.pd.queue_pair(&self.cq).signal_all(true).create().expect("a queue pair");
        while self.cq.poll_one().expect("no overrun").is_some() {}
        while self.device.events().try_next().is_some() {}
    }

    fn endpoint(&self) -> QpEndpoint {
        self.qp.endpoint()
    }

    fn wait(&self) -> Completion {
        let mut done = [Completion::default()];
        let count = self.cq.wait(&mut done, PATIENCE).expect("a completion in time");
        assert_eq!(count, 1);
        done[0]
    }
}

fn connect(ends: &[End; 2]) {
    // A message of the attacker may take the receive, so the sender does not wait for ever.
    let options = ConnectOptions::new().rnr_retry(3);
    for (own, peer) in [(0, 1), (1, 0)] {
        ends[own].qp.connect(&ends[peer].endpoint(), &options).expect("connected");
    }
}

/// Sends packets of any address. The kernel fills in the checksum and the identification of IPv4.
struct Raw(Socket);

impl Raw {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc_ipproto_raw())));
        Self(socket.expect("root in this namespace may open a raw socket"))
    }

    fn send(&self, packet: &PacketRun) {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (packet.from, packet.to) else {
            unreachable!("the namespace has IPv4")
        };
        let udp_len = (8 + packet.bytes.len()) as u16;
        let mut bytes = vec![0x45, packet.traffic_class];
        bytes.extend((20 + udp_len).to_be_bytes());
        // Identification 0, do not fragment, hops, UDP, and a checksum that the kernel fills in.
        bytes.extend([0, 0, 0x40, 0, HOPS, 17, 0, 0]);
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes.extend(packet.from_port.to_be_bytes());
        bytes.extend(ROCE_PORT.to_be_bytes());
        bytes.extend(udp_len.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(&packet.bytes);
        let to = SockAddr::from(std::net::SocketAddr::new(packet.to, 0));
        // A full queue of the kernel loses the packet.
        let _ = self.0.send_to(&bytes, &to);
    }
}

const fn libc_ipproto_raw() -> i32 {
    255
}

/// Runs honest operations from the first to the second end until `is_over`. Checks their data
/// unless the attacker `knows_psns`, because it can then send messages of its own. Returns the
/// number of operations, and whether the connection has ended with a failed completion.
fn operate(
    ends: &[End; 2],
    rng: &mut Rng,
    knows_psns: bool,
    is_over: impl Fn() -> bool,
) -> (u64, bool) {
    let [a, b] = ends;
    let half = MEMORY / 2;
    let remote: RemoteRegion = b.closed.remote();
    let mut operations = 0;
    while !is_over() {
        let len = 1 + rng.index(8_000);
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        let kind = rng.below(3);
        let source = if kind == 2 { b } else { a };
        source.closed.write(0, &bytes).expect("in the region");
        let local = a.closed.slice(..len).expect("in the region");
        let posted = match kind {
            0 => {
                let into = b.closed.slice(half..half + len).expect("in the region");
                // Receives wait for ever if the attacker's message ended the connection.
                let posted = b.qp.post_recv(&RecvRequest::new(into));
                assert!(knows_psns || posted.is_ok(), "{posted:?}");
                a.qp.post_send(&SendRequest::send(local))
            }
            1 => {
                let there = remote.slice(half as u64..).expect("in the region");
                a.qp.post_send(&SendRequest::write(local, there))
            }
            _ => {
                let into = a.closed.slice(half..half + len).expect("in the region");
                a.qp.post_send(&SendRequest::read(into, remote))
            }
        };
        posted.expect("taken");
        if a.wait().status != WcStatus::Success {
            return (operations, true);
        }
        operations += 1;
        if knows_psns {
            while b.cq.poll_one().expect("no overrun").is_some() {}
            continue;
        }
        if kind == 0 && b.wait().status != WcStatus::Success {
            return (operations, true);
        }
        let target = if kind == 2 { a } else { b };
        assert!(target.closed.read_vec(half, len).expect("in the region") == bytes, "{kind}: data");
    }
    (operations, false)
}

/// Runs `attack` for each number of a packet in another thread while the ends exchange messages.
fn under_attack(
    ends: &[End; 2],
    rng: &mut Rng,
    packets: u64,
    (is_paced, knows_psns): (bool, bool),
    mut attack: impl FnMut(&mut Rng) + Send,
) -> (u64, bool) {
    let stopped = AtomicBool::new(false);
    let mut attackers = Rng::stream(rng.next_u64(), 1);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            for number in 1..=packets {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                attack(&mut attackers);
                if is_paced && number % BURST == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let outcome = operate(ends, rng, knows_psns, || attacker.is_finished());
        stopped.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: u64 = text.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}

fn namespace() -> impl Drop {
    let alone = own_namespace();
    ip("link set lo up");
    alone
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn an_off_path_attacker_over_sockets_changes_nothing() {
    let _namespace = namespace();
    let mut rng = Rng::stream(seed(), 4);
    let packets = number("URXE_FORGED_SENT", FORGED);
    let ends = ENDS.map(End::new);
    connect(&ends);
    let raw = Raw::new();
    let known = [0, 1].map(|victim| (ends[victim].endpoint(), ends[1 - victim].endpoint()));
    let (operations, has_failed) = under_attack(&ends, &mut rng, packets, (true, false), |rng| {
        let victim = rng.index(2);
        let (own, peer) = known[victim];
        let others = (1 << 24) - 2 * u64::from(PLAUSIBLE);
        // Requests follow the peer's PSN, and responses the own one.
        let first = if rng.below(2) == 0 { own.psn } else { peer.psn };
        let psn = first.value() + PLAUSIBLE + rng.below(others) as u32;
        let hostile = Hostile {
            psn: psn & 0xff_ffff,
            from_port: if rng.below(2) == 0 { ROCE_PORT } else { rng.next_u32() as u16 },
            dest_qp: own.qpn.value(),
            target: Some((rng.next_u32(), rng.next_u64(), rng.next_u32() >> rng.below(32))),
            ..Hostile::default()
        };
        let (from, to) = (ENDS[1 - victim].into(), ENDS[victim].into());
        raw.send(&forge(rng, from, to, hostile));
    });
    println!("{packets} packets of an off-path attacker over sockets, {operations} operations");
    assert!(!has_failed && operations > 0, "the connection has ended");
    for end in &ends {
        assert_eq!(end.qp.state(), QpState::Rts, "{}", end.address);
        assert!(end.device.events().try_next().is_none(), "{}", end.address);
    }
}

/// Reads the packets of the namespace, from the IP header on (packet(7)).
fn watch() -> Socket {
    let protocol = Protocol::from(i32::from(0x0800_u16.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).expect("a packet socket");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    socket
}

/// Returns the next packet that an end has sent, as a run.
fn seen(watch: &mut Socket, buffer: &mut [u8]) -> Option<PacketRun> {
    let length = watch.read(buffer).ok()?;
    let frame = Frame::parse_ip(&buffer[..length]).ok()?;
    let repr = frame.repr;
    let is_own = matches!(repr.ip, IpRepr::V4 { ttl: HOPS, .. });
    // Loopback passes several packets as one.
    let is_whole = frame.udp_payload.len() < 4_200;
    (is_whole && !is_own && repr.dst.port() == ROCE_PORT).then(|| {
        let (bytes, from_port) = (frame.udp_payload.to_vec(), repr.src.port());
        let len = bytes.len();
        PacketRun { from_port, ..PacketRun::new(repr.src.ip(), repr.dst.ip(), bytes, len) }
    })
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn an_attacker_beside_the_path_reaches_no_other_memory() {
    let _namespace = namespace();
    let mut rng = Rng::stream(seed(), 5);
    let packets = number("URXE_FORGED_SENT", FORGED);
    let mut ends = ENDS.map(End::new);
    // No operation uses these bytes.
    let untouched = MEMORY - 4_096..MEMORY;
    let pattern: Vec<u8> = (0..untouched.len()).map(|at| (at * 7) as u8).collect();
    for end in &ends {
        end.closed.write(untouched.start, &pattern).expect("in the region");
    }
    let keys = [0, 1].map(|end: usize| ends[end].open.rkey().0);
    let raw = Raw::new();
    let (mut forged, mut ended, mut connections, mut total) = (0, 0, 0, 0);
    let start = Instant::now();
    while forged < packets && start.elapsed() < Duration::from_secs(60) {
        connect(&ends);
        let (mut watch, mut buffer) = (watch(), vec![0; 1 << 17]);
        let mut added = 0;
        let outcome = under_attack(&ends, &mut rng, packets - forged, (true, true), |rng| {
            let Some(packet) = seen(&mut watch, &mut buffer) else { return };
            let key = keys[usize::from(packet.to == IpAddr::V4(ENDS[1]))];
            let (arriving, _) = on_path(rng, packet, Known { rkey: key, srq: 0 });
            arriving.iter().for_each(|packet| raw.send(packet));
            added += arriving.len() as u64;
        });
        (forged, total) = (forged + added.max(1), total + outcome.0);
        (connections, ended) = (connections + 1, ended + u64::from(outcome.1));
        for end in &mut ends {
            let kept = end.closed.read_vec(untouched.start, untouched.len());
            assert!(kept.expect("in the region") == pattern, "memory of {}", end.address);
            end.renew();
        }
    }
    println!(
        "{forged} packets of an attacker beside the path, {ended} of {connections} connections \
         ended, {total} operations"
    );
    assert!(forged >= packets.min(1_000), "{forged} packets");
    connect(&ends);
    let until = Instant::now() + Duration::from_millis(50);
    let (operations, has_failed) = operate(&ends, &mut rng, false, || Instant::now() > until);
    assert!(!has_failed && operations > 0, "the devices work afterwards");
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_flood_from_many_addresses_leaves_devices_that_work() {
    let _namespace = namespace();
    let mut rng = Rng::stream(seed(), 6);
    let packets = number("URXE_FORGED_SENT", FORGED);
    let ends = ENDS.map(End::new);
    connect(&ends);
    let (raw, before) = (Raw::new(), resident());
    let qps = [0, 1].map(|end: usize| ends[end].endpoint().qpn.value());
    let services = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcRecv];
    let (operations, has_failed) = under_attack(&ends, &mut rng, packets, (false, false), |rng| {
        let victim = rng.index(2);
        // 127.128.0.0/9 has neither of the ends.
        let from = Ipv4Addr::from(0x7f80_0000 | (rng.next_u32() & 0x7f_ffff));
        let hostile = Hostile {
            psn: rng.next_u32() & 0xff_ffff,
            from_port: rng.next_u32() as u16,
            // The queue pair, the connection manager, or a number of no queue pair.
            dest_qp: match rng.below(3) {
                0 => qps[victim],
                1 => 1,
                _ => rng.next_u32() & 0xff_ffff,
            },
            service: Hostile::service(services[rng.index(4)]),
            qkey: 0x8001_0000,
            ..Hostile::default()
        };
        raw.send(&forge(rng, from.into(), ENDS[victim].into(), hostile));
    });
    let growth = resident().saturating_sub(before);
    println!("{packets} packets of a flood, {operations} operations, {} KiB more", growth >> 10);
    assert!(!has_failed, "the connection has ended");
    assert!(growth < GROWTH, "{growth} bytes more");
    let until = Instant::now() + Duration::from_millis(50);
    let (operations, has_failed) = operate(&ends, &mut rng, false, || Instant::now() > until);
    assert!(!has_failed && operations > 0, "the devices work afterwards");
}
