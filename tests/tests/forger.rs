//! The packet forger: attackers that send packets with a valid ICRC to a device.
//!
//! - An *off-path* attacker knows addresses, ports and queue pair numbers, but no PSN. The data of
//!   the connection must be right. The connection must stay up without a retransmission, and the
//!   device must send no more than the attacker.
//! - An *on-path* attacker reads, changes, drops, repeats and delays the packets of a connection,
//!   and adds some. No memory beyond that of the keys on the wire may change. Every work request
//!   completes once, and a connection ends for a reported reason.
//! - A *hostile peer* knows everything, and has a key to one region. No other memory may change. A
//!   call sends a bounded number of bytes, and a connection ends for a reported reason.
//!
//! `URXE_FORGED` is the number of packets of each attacker (default: half a million). `URXE_SEED`
//! replays a run.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use urxe_stack::cq::WcStatus;
use urxe_stack::device::DeviceConfig;
use urxe_stack::device::counters::Counter;
use urxe_stack::memory::{Access, Mr};
use urxe_stack::qp::attr::{QpAttr, QpState, QpType};
use urxe_stack::qp::work_request::{Remote, SendOp, SendRequest};
use urxe_stack::rng::Rng;
use urxe_stack::time::Time;
use urxe_test_support::host::{A, B, Host, HostOptions, pair, run};
use urxe_test_support::qp::{FIRST_PSN, REMOTE, attributes, datagram_attributes, request};
use urxe_test_support::wire::{PacketRun, Wire};
use urxe_wire::opcode::HeaderSet;
use urxe_wire::packet::{ICRC_LEN, pad_count};
use urxe_wire::{
    Bth, Gid, IcrcSeed, Kind, Opcode, PacketView, Psn, QKey, Qpn, ROCE_PORT, Syndrome,
};

/// The forged packets of each attacker in CI.
const FORGED: u64 = 500_000;
/// The longest payload: the path MTU of the queue pairs.
const MTU: usize = 1024;
/// The most bytes of a call: 2 MiB and a run.
const CALL_BYTES: usize = (2 << 20) + (64 << 10);
/// The bytes of the IPv4 and UDP headers.
const NETWORK_HEADERS: usize = 28;
/// The distance of the off-path attacker's PSNs from those of the connection. A connection of the
/// test has far fewer packets.
const PLAUSIBLE: u32 = 200_000;
/// The honest operations of a connection, after which another one begins.
const OPERATIONS: u32 = 200;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    let seed = number("URXE_SEED", 1);
    println!("URXE_SEED={seed} replays this run");
    seed
}

/// The fields of a forged packet that its attacker chooses with care.
#[derive(Clone, Copy, Default)]
struct Hostile {
    psn: u32,
    from_port: u16,
    dest_qp: u32,
    /// A key and an address range, for packets with a RETH.
    target: Option<(u32, u64, u32)>,
}

/// Returns a packet with a valid ICRC. Opcode, flags, headers and payload are random.
fn forge(rng: &mut Rng, from: IpAddr, to: IpAddr, hostile: Hostile) -> PacketRun {
    let opcode = rng.next_u32() as u8;
    let info = Opcode::lookup(opcode);
    let headers = info.map_or(rng.index(40), |info| info.headers_len() - Bth::LEN);
    let payload = match rng.below(4) {
        0 => 0,
        1 => MTU,
        2 => rng.index(9),
        _ => rng.index(MTU + 5),
    };
    let mut bytes =
        vec![0; Bth::LEN + headers + payload + usize::from(pad_count(payload)) + ICRC_LEN];
    rng.fill(&mut bytes);
    bytes[0] = opcode;
    // Solicited, migrated, pad count, version 0.
    bytes[1] = (rng.next_u32() as u8 & 0xc0) | pad_count(payload) << 4;
    if rng.below(20) > 0 {
        bytes[2..4].copy_from_slice(&[0xff, 0xff]);
    }
    bytes[5..8].copy_from_slice(&hostile.dest_qp.to_be_bytes()[1..]);
    bytes[9..12].copy_from_slice(&hostile.psn.to_be_bytes()[1..]);
    let reth = info.and_then(|info| info.offset(HeaderSet::RETH));
    if let (Some(at), Some((key, va, len))) = (reth, hostile.target) {
        bytes[at..at + 8].copy_from_slice(&va.to_be_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&key.to_be_bytes());
        let len = if rng.below(3) == 0 { payload as u32 } else { len };
        bytes[at + 12..at + 16].copy_from_slice(&len.to_be_bytes());
    }
    let end = bytes.len() - ICRC_LEN;
    let icrc = IcrcSeed::new(from, hostile.from_port, to, ROCE_PORT).expect("one family");
    icrc.append(0, &mut bytes, end).expect("there is room");
    let len = bytes.len();
    // One of eight is marked by a router.
    let traffic_class = if rng.below(8) == 0 { 3 } else { 2 };
    let from_port = hostile.from_port;
    PacketRun { from_port, traffic_class, ..PacketRun::new(from, to, bytes, len) }
}

/// Returns the bytes of a run with the headers of IPv4 and UDP.
fn on_the_wire(run: &PacketRun) -> usize {
    run.bytes.len() + NETWORK_HEADERS * run.segments().count()
}

/// A random operation of the honest program at `a`: its kind, its length and its place.
fn operate(rng: &mut Rng, a: &Host, b: &Host, wr_id: u64) -> (SendOp, usize, u64) {
    let len = 1 + rng.index(4 * MTU);
    let at = rng.below(1 << 18);
    let remote = b.remote(at);
    let op = match rng.below(3) {
        0 => SendOp::Send,
        1 => SendOp::Write { remote },
        _ => SendOp::Read { remote },
    };
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    match op {
        SendOp::Read { .. } => b.write(at as usize, &bytes),
        _ => a.write(1 << 19, &bytes),
    }
    if op == SendOp::Send {
        b.post_recv(wr_id, &[b.sge(at, len as u32)]);
    }
    a.post(op, &[a.sge(1 << 19, len as u32)]);
    (op, len, at)
}

/// Counters that stay at 0 without loss.
const RETRANSMISSIONS: [Counter; 4] = [
    Counter::CompleterRetryErr,
    Counter::SendSeqErr,
    Counter::ReorderBuffered,
    Counter::RcvdSeqErr,
];
/// The packets of an attack.
const BURST: u64 = 8;

/// Sends forged packets of `peer` to `victim`, whose PSNs the attacker does not know. Returns the
/// number of bytes.
fn attack(rng: &mut Rng, victim: &Host, peer: IpAddr) -> usize {
    let wire = Wire::default();
    let mut bytes = 0;
    for _ in 0..BURST {
        let others = (1 << 24) - 2 * u64::from(PLAUSIBLE);
        let psn = FIRST_PSN.value() + PLAUSIBLE + rng.below(others) as u32;
        let from_port = if rng.below(2) == 0 { ROCE_PORT } else { rng.next_u32() as u16 };
        let target = Some((rng.next_u32(), rng.below(1 << 40), rng.next_u32() >> rng.below(32)));
        let dest_qp = victim.qp.qpn().value();
        let hostile = Hostile { psn: psn & 0xff_ffff, from_port, dest_qp, target };
        let packet = forge(rng, peer, victim.address, hostile);
        bytes += on_the_wire(&packet);
        wire.deliver(&victim.device, victim.clock.now(), &packet);
    }
    bytes
}

/// Moves packets until both hosts have nothing more to send, with attacks in between. Returns the
/// number of forged packets.
fn run_under_attack(rng: &mut Rng, a: &Host, b: &Host, wire: &Wire) -> u64 {
    let mut forged = 0;
    loop {
        for (victim, peer) in [(a, b), (b, a)] {
            if rng.below(2) == 0 {
                attack(rng, victim, peer.address);
                forged += BURST;
            }
        }
        a.transmit(wire);
        b.transmit(wire);
        let Some(packets) = wire.pop() else { return forged };
        let receiver = if packets.to == a.address { a } else { b };
        wire.deliver(&receiver.device, receiver.clock.now(), &packets);
    }
}

#[test]
fn an_attacker_without_the_psn_changes_nothing() {
    let mut rng = Rng::stream(seed(), 1);
    let (wanted, mut forged) = (number("URXE_FORGED", FORGED), 0);
    while forged < wanted {
        let (a, b, wire) = pair();
        // The first packets teach the ports.
        a.post(SendOp::Write { remote: b.remote(0) }, &[a.sge(0, 1)]);
        b.post(SendOp::Write { remote: a.remote(0) }, &[b.sge(0, 1)]);
        run(&a, &b, &wire);
        assert_eq!(
            (a.statuses(), b.statuses()),
            (vec![WcStatus::Success], vec![WcStatus::Success])
        );
        for wr_id in 0..OPERATIONS.into() {
            let (op, len, at) = operate(&mut rng, &a, &b, wr_id);
            forged += run_under_attack(&mut rng, &a, &b, &wire);
            assert_eq!(a.statuses(), [WcStatus::Success], "{op:?}");
            let received = b.statuses();
            let is_send = op == SendOp::Send;
            assert!(received == vec![WcStatus::Success; is_send.into()], "{op:?}: {received:?}");
            assert!(a.bytes(1 << 19, len) == b.bytes(at as usize, len), "{op:?} of {len} bytes");
            // Nothing is pending, so all packets are a reaction.
            let received = attack(&mut rng, &b, a.address);
            forged += BURST;
            b.transmit(&wire);
            let reaction: usize = wire.take().iter().map(on_the_wire).sum();
            assert!(reaction <= received, "{reaction} bytes for {received}");
            a.clock.advance(10_000);
            b.clock.set(a.clock.now());
        }
        for host in [&a, &b] {
            assert_eq!(host.state(host.qp), QpState::Rts);
            assert_eq!(host.events(), []);
            for counter in RETRANSMISSIONS {
                assert_eq!(host.counter(counter), 0, "{}", counter.name());
            }
        }
    }
    println!("{forged} packets of an off-path attacker to RC in RTS");
}

/// The services and states of the targets of a hostile peer.
const TARGETS: [(QpType, QpState); 11] = [
    (QpType::Rc, QpState::Init),
    (QpType::Rc, QpState::Rtr),
    (QpType::Rc, QpState::Rts),
    (QpType::Rc, QpState::Sqd),
    (QpType::Rc, QpState::Err),
    (QpType::Uc, QpState::Rtr),
    (QpType::Uc, QpState::Rts),
    (QpType::Uc, QpState::Err),
    (QpType::Ud, QpState::Rtr),
    (QpType::Ud, QpState::Rts),
    (QpType::Ud, QpState::Err),
];
/// The most packets to one target.
const PACKETS: u64 = 2_000;
/// Bytes of the target's buffer.
const MEMORY: usize = 1 << 16;
/// The range that the hostile peer may read and write.
const OPEN: std::ops::Range<usize> = 0x4000..0x5000;
/// The range of receives and READs.
const RECEIVES: std::ops::Range<usize> = 0x8000..0xa000;

/// A queue pair, and the knowledge of its hostile peer.
struct Target {
    host: Host,
    state: QpState,
    qp_type: QpType,
    open: Mr,
    before: Vec<u8>,
    /// The PSN of the next request, as far as the replies tell.
    expected: Psn,
    /// A completion or an event has reported a failure.
    has_reason: bool,
}

impl Target {
    fn new(rng: &mut Rng, qp_type: QpType, state: QpState) -> Self {
        let config = DeviceConfig::new(vec![Gid::from_ip(A.into())], rng.next_u64());
        let access = Access::LOCAL_WRITE | REMOTE | Access::ZERO_BASED;
        let options = HostOptions { qp_type, memory: MEMORY, access, ..HostOptions::default() };
        let host = Host::with(A.into(), config, options);
        let mut before = vec![0; MEMORY];
        rng.fill(&mut before);
        host.write(0, &before);
        let memory = host.device.memory();
        let open = memory
            .register_buffer(host.pd, &Arc::clone(&host.buffer), OPEN, 0, access)
            .expect("a region");
        let attr = match qp_type {
            QpType::Ud => datagram_attributes(QKey(0x1234)),
            _ => attributes(B.into(), Qpn::masked(0x77)),
        };
        let to = if matches!(state, QpState::Sqd | QpState::Err) { QpState::Rts } else { state };
        host.bring_up((host.qp, qp_type), &attr, to);
        let half = (RECEIVES.len() / 2) as u32;
        for wr_id in 0..8 {
            host.post_recv(wr_id, &[host.sge(RECEIVES.start as u64, half)]);
        }
        if to == QpState::Rts && qp_type == QpType::Rc {
            let remote = Remote { addr: 0, rkey: open.rkey };
            host.post(
                SendOp::Read { remote },
                &[host.sge((RECEIVES.start as u32 + half).into(), half)],
            );
            host.post(SendOp::Send, &[host.sge(0, 3_000)]);
        }
        if to != state {
            host.go_to(host.qp, state);
        }
        host.transmit(&Wire::default());
        let expected = FIRST_PSN;
        Self { host, state, qp_type, open, before, expected, has_reason: false }
    }

    /// Sends a hostile packet.
    fn attack(&mut self, rng: &mut Rng, wire: &Wire) {
        let host = &self.host;
        let near = match rng.below(10) {
            0 => rng.next_u32(),
            1..4 => FIRST_PSN.value().wrapping_add(rng.below(16) as u32),
            _ => self.expected.value().wrapping_add(rng.below(3) as u32),
        };
        let va = match rng.below(4) {
            0 => rng.next_u64(),
            _ => rng.below(OPEN.len() as u64 + 64).wrapping_sub(32),
        };
        let key = if rng.below(8) == 0 { rng.next_u32() } else { self.open.rkey.0 };
        let len = rng.next_u32() >> rng.below(32);
        let hostile = Hostile {
            psn: near & 0xff_ffff,
            from_port: if rng.below(8) == 0 { rng.next_u32() as u16 } else { ROCE_PORT },
            dest_qp: host.qp.qpn().value(),
            target: Some((key, va, len)),
        };
        let packet = forge(rng, B.into(), A.into(), hostile);
        host.clock.advance(rng.below(1_000_000));
        wire.deliver(&host.device, host.clock.now(), &packet);
        host.device.handle_timeouts(host.clock.now());
        host.transmit(wire);
        let sent = wire.take();
        let bytes: usize = sent.iter().map(|run| run.bytes.len()).sum();
        assert!(bytes <= CALL_BYTES, "{bytes} bytes in one call");
        for bytes in sent.iter().flat_map(PacketRun::segments) {
            let reply = PacketView::parse(bytes).expect("the device sends valid packets");
            if let (Kind::Ack, Some(aeth)) = (reply.info().kind, reply.aeth()) {
                let done = matches!(aeth.syndrome, Syndrome::Ack(_));
                self.expected = if done { reply.psn().next() } else { reply.psn() };
            }
        }
        let failed = |status: WcStatus| status != WcStatus::Success;
        self.has_reason |= host.statuses().into_iter().any(failed) | !host.events().is_empty();
    }

    fn has_failed(&self) -> bool {
        self.state != QpState::Err && self.host.state(self.host.qp) == QpState::Err
    }

    /// Checks the memory, and the reason of a failure.
    fn check(&self) {
        let after = self.host.bytes(0, MEMORY);
        for (at, (before, after)) in self.before.iter().zip(&after).enumerate() {
            let may_change = OPEN.contains(&at) || RECEIVES.contains(&at);
            assert!(may_change || before == after, "byte {at} has changed");
        }
        assert!(!self.has_failed() || self.has_reason, "failed without a completion or an event");
    }
}

#[test]
fn hostile_packets_reach_no_other_memory_and_end_a_connection_for_a_reason() {
    let mut rng = Rng::stream(seed(), 2);
    let (wanted, mut forged) = (number("URXE_FORGED", FORGED), 0);
    let (wire, mut counts) = (Wire::default(), BTreeMap::<_, (u64, u64)>::new());
    while forged < wanted {
        // The target with the fewest packets so far, because connections in RTS soon end.
        let so_far = |(qp_type, state): &(QpType, QpState)| {
            counts.get(&format!("{qp_type} in {state}")).map_or(0, |(packets, _)| *packets)
        };
        let (qp_type, state) = TARGETS.into_iter().min_by_key(so_far).expect("a target");
        let mut target = Target::new(&mut rng, qp_type, state);
        let mut sent = 0;
        while sent < PACKETS && !target.has_failed() {
            target.attack(&mut rng, &wire);
            sent += 1;
        }
        target.check();
        let (packets, failed) = counts.entry(format!("{} in {state}", target.qp_type)).or_default();
        (*packets, *failed) = (*packets + sent, *failed + u64::from(target.has_failed()));
        forged += sent;
    }
    for (target, (packets, failed)) in &counts {
        println!("{target}: {packets} packets of a hostile peer, {failed} connections ended");
    }
    let all = TARGETS.len();
    assert_eq!(counts.len(), all, "each service and state: {counts:?}");
}

/// The work requests of a connection under an attack on the path, after which it ends.
const CONNECTION: u64 = 60;
/// The steps after which an attack ends. The attacker may stop a connection as long as it lasts.
const ATTACK: usize = 3_000;
/// The most steps of a connection until it has completed everything or failed.
const STEPS: usize = 20_000;
/// The longest time between two steps of a quiet path, longer than a timeout: 100 ms.
const QUIET_NS: u64 = 100_000_000;

/// A host of a connection that is attacked on its path.
struct End {
    host: Host,
    open: Mr,
    before: Vec<u8>,
    /// Operations and receives without a completion yet, by number. Receives have even numbers.
    outstanding: Vec<u64>,
    next_id: u64,
    has_reason: bool,
}

impl End {
    fn new(rng: &mut Rng, address: std::net::Ipv4Addr) -> Self {
        let config = DeviceConfig::new(vec![Gid::from_ip(address.into())], rng.next_u64());
        let access = Access::LOCAL_WRITE | REMOTE | Access::ZERO_BASED;
        let options = HostOptions { memory: MEMORY, access, ..HostOptions::default() };
        let host = Host::with(address.into(), config, options);
        let mut before = vec![0; MEMORY];
        rng.fill(&mut before);
        host.write(0, &before);
        let memory = host.device.memory();
        let buffer = Arc::clone(&host.buffer);
        let open = memory.register_buffer(host.pd, &buffer, OPEN, 0, access).expect("a region");
        Self { host, open, before, outstanding: Vec::new(), next_id: 0, has_reason: false }
    }

    fn connect(&self, peer: &Self) {
        let attr = attributes(peer.host.address, peer.host.qp.qpn());
        // A program that waits for receives without a limit could wait for ever.
        let attr = QpAttr { rnr_retry: 3, ..attr };
        self.host.bring_up((self.host.qp, QpType::Rc), &attr, QpState::Rts);
    }

    fn next_id(&mut self, is_receive: bool) -> u64 {
        self.next_id += 2;
        let wr_id = self.next_id + u64::from(!is_receive);
        self.outstanding.push(wr_id);
        wr_id
    }

    /// Returns the number of operations, or of receives, without a completion.
    fn waiting(&self, is_receive: bool) -> usize {
        self.outstanding.iter().filter(|wr_id| (*wr_id % 2 == 0) == is_receive).count()
    }

    fn post_receives(&mut self) {
        let half = (RECEIVES.len() / 2) as u32;
        while self.waiting(true) < 8 {
            let wr_id = self.next_id(true);
            self.host.post_recv(wr_id, &[self.host.sge(RECEIVES.start as u64, half)]);
        }
    }

    /// Posts an operation of random kind and size to the open region of the peer.
    fn operate(&mut self, rng: &mut Rng, rkey: urxe_wire::Rkey) {
        let half = RECEIVES.len() / 2;
        let len = 1 + rng.index(half);
        let remote = Remote { addr: rng.below((OPEN.len() - len + 1) as u64), rkey };
        let place = self.host.sge((RECEIVES.start + half) as u64, len as u32);
        let word = self.host.sge((RECEIVES.start + half) as u64, 8);
        let (op, sge) = match rng.below(4) {
            0 => (SendOp::Send, self.host.sge(0, len as u32)),
            1 => (SendOp::Write { remote }, self.host.sge(0, len as u32)),
            2 => (SendOp::Read { remote }, place),
            _ => (SendOp::FetchAdd { remote: Remote { addr: 8, rkey }, add: 1 }, word),
        };
        let wr_id = self.next_id(false);
        let list = [sge];
        let request = SendRequest { wr_id, ..request(op, &list) };
        self.host.post_request(self.host.qp, &request).expect("taken");
    }

    /// Handles what is due and returns the packets that the host sends in one call.
    fn step(&mut self, now: u64, wire: &Wire) -> Vec<PacketRun> {
        self.host.clock.set(Time::from_ns(now));
        self.host.device.handle_timeouts(self.host.clock.now());
        self.host.transmit(wire);
        let sent = wire.take();
        let bytes: usize = sent.iter().map(|run| run.bytes.len()).sum();
        assert!(bytes <= CALL_BYTES, "{bytes} bytes in one call");
        for done in self.host.completions() {
            let at = self.outstanding.iter().position(|wr_id| *wr_id == done.wr_id);
            self.outstanding.swap_remove(at.expect("each work request completes once"));
            self.has_reason |= done.status != WcStatus::Success;
        }
        self.has_reason |= !self.host.events().is_empty();
        sent
    }

    fn has_failed(&self) -> bool {
        self.host.state(self.host.qp) == QpState::Err
    }

    fn check(&self) {
        assert!(!self.has_failed() || self.has_reason, "failed without a completion or an event");
        let after = self.host.bytes(0, MEMORY);
        for (at, (before, after)) in self.before.iter().zip(&after).enumerate() {
            let may_change = OPEN.contains(&at) || RECEIVES.contains(&at);
            assert!(may_change || before == after, "byte {at} has changed");
        }
    }
}

/// Returns the packets that arrive in place of a packet, and the name of the change.
fn on_path(rng: &mut Rng, packet: PacketRun, rkey: u32) -> (Vec<PacketRun>, &'static str) {
    match rng.below(8) {
        0 => (Vec::new(), "dropped"),
        1 => (vec![packet.clone(), packet], "repeated"),
        2 | 3 => {
            // A byte of the headers or of the payload.
            let mut changed = packet;
            let end = changed.bytes.len() - ICRC_LEN;
            let until = if rng.below(2) == 0 { end.min(28) } else { end };
            let at = rng.index(until);
            changed.bytes[at] = rng.next_u32() as u8;
            changed.seal();
            (vec![changed], "changed")
        }
        4 => {
            let mut cut = packet;
            let len = ICRC_LEN + rng.index(cut.bytes.len());
            cut.bytes.resize(len, 0);
            cut.segment_size = len;
            cut.seal();
            (vec![cut], "cut or longer")
        }
        _ => {
            // Another packet at the same place of the connection.
            let bth = Bth::parse(&packet.bytes).expect("a packet of a host");
            let hostile = Hostile {
                psn: bth.psn.value().wrapping_add(rng.below(3) as u32) & 0xff_ffff,
                from_port: packet.from_port,
                dest_qp: bth.dest_qp.value(),
                target: Some((rkey, rng.below(OPEN.len() as u64), rng.next_u32() >> rng.below(32))),
            };
            let forged = forge(rng, packet.from, packet.to, hostile);
            (vec![forged, packet], "added")
        }
    }
}

#[test]
fn an_attacker_on_the_path_reaches_no_other_memory_and_leaves_no_work_request_waiting() {
    let mut rng = Rng::stream(seed(), 3);
    let wanted = number("URXE_FORGED", FORGED) / 50;
    let (mut counts, mut forged, mut failed, mut connections) = (BTreeMap::new(), 0, 0, 0);
    let wire = Wire::default();
    while forged < wanted {
        let [mut a, mut b] = [A, B].map(|address| End::new(&mut rng, address));
        a.connect(&b);
        b.connect(&a);
        let keys = [b.open.rkey, a.open.rkey];
        // One packet of so many is attacked.
        let rate = 1 << (3 + rng.below(8));
        let (mut flying, mut now, mut posted) = (VecDeque::new(), 1, 0);
        for step in 0.. {
            assert!(step < STEPS, "work requests wait: {:?}, {:?}", a.outstanding, b.outstanding);
            let has_failed = a.has_failed() || b.has_failed();
            let is_over = posted == CONNECTION || step > ATTACK || has_failed;
            if !is_over && a.waiting(false).max(b.waiting(false)) < 8 {
                for (end, key) in [(&mut a, keys[0]), (&mut b, keys[1])] {
                    end.post_receives();
                    end.operate(&mut rng, key);
                }
                posted += 1;
            }
            for end in [&mut a, &mut b] {
                let sent = end.step(now, &wire);
                flying.extend(sent.iter().flat_map(single_packets));
            }
            let is_done = |end: &End| end.has_failed() || end.waiting(false) == 0;
            if is_over && flying.is_empty() && is_done(&a) && is_done(&b) {
                break;
            }
            let Some(packet) = flying.pop_front() else {
                now += if is_over { QUIET_NS } else { 1 + rng.below(QUIET_NS) };
                continue;
            };
            now += rng.below(2_000);
            let end = if packet.to == a.host.address { &a } else { &b };
            let rkey = end.open.rkey.0;
            let is_attacked = !is_over && rng.below(rate) == 0;
            let (arriving, change) = match is_attacked {
                true if rng.below(4) == 0 => {
                    // Later packets overtake it.
                    let place = rng.index(flying.len() + 1);
                    flying.insert(place, packet);
                    (Vec::new(), "delayed")
                }
                true => on_path(&mut rng, packet, rkey),
                false => (vec![packet], "untouched"),
            };
            *counts.entry(change).or_insert(0_u64) += 1;
            forged += u64::from(is_attacked);
            for packet in arriving {
                wire.deliver(&end.host.device, end.host.clock.now(), &packet);
            }
        }
        connections += 1;
        failed += u64::from(a.has_failed() || b.has_failed());
        for end in [&mut a, &mut b] {
            end.check();
            end.host.go_to(end.host.qp, QpState::Err);
            end.step(now, &wire);
            assert!(end.outstanding.is_empty(), "not completed: {:?}", end.outstanding);
        }
    }
    println!("on the path: {counts:?}; {failed} of {connections} connections ended");
    assert_eq!(counts.len(), 7, "each change: {counts:?}");
}

/// Returns the packets of a run, each as a run of its own.
fn single_packets(run: &PacketRun) -> Vec<PacketRun> {
    let single = |bytes: &[u8]| PacketRun {
        bytes: bytes.to_vec(),
        segment_size: bytes.len(),
        ..run.clone()
    };
    run.segments().map(single).collect()
}
