//! The on-path attacker, which reads and replaces the packets of a connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use urxe_stack::cq::{SrqId, WcStatus};
use urxe_stack::device::{DeviceConfig, QpHandle};
use urxe_stack::memory::{Access, Mr};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpAttr, QpState, QpType};
use urxe_stack::qp::work_request::{Destination, RecvRequest, Remote, SendOp, SendRequest};
use urxe_stack::rng::Rng;
use urxe_stack::srq::xrcd::XrcdFlags;
use urxe_stack::srq::{Srq, XrcSrqInit};
use urxe_stack::time::Time;
use urxe_test_support::host::{A, B, Host, HostOptions};
use urxe_test_support::qp::{REMOTE, attributes, request};
use urxe_test_support::wire::{PacketRun, Wire};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Bth, Gid, Rkey};

use super::forge::{Hostile, forge, single_packets};
use super::{CALL_BYTES, FORGED, MEMORY, OPEN, RECEIVES, number, seed};

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
    /// The queue pair that sends requests, and the one that receives them. The same for RC.
    qps: [QpHandle; 2],
    /// The queue that takes the receives of an XRC connection.
    srq: Option<Arc<Srq>>,
    open: Mr,
    before: Vec<u8>,
    /// Operations and receives without a completion yet, by number. Receives have even numbers.
    outstanding: Vec<u64>,
    next_id: u64,
    has_reason: bool,
}

impl End {
    fn new(rng: &mut Rng, address: std::net::Ipv4Addr, service: QpType) -> Self {
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
        let (qps, srq) = match service {
            QpType::XrcSend => {
                let domain = host.device.open_xrcd(None, XrcdFlags::CREATE, |_| Ok(None));
                let xrcd = domain.expect("a domain");
                let target = host.device.create_xrc_target(&xrcd).expect("a target");
                let srq = XrcSrqInit { xrcd, cq: Arc::clone(&host.cq) };
                let sender = host.create(&QpInit { qp_type: service, ..host.init() });
                ([sender, target], Some(host.create_srq(host.pd, 16, Some(srq))))
            }
            _ => ([host.qp; 2], None),
        };
        let (outstanding, next_id, has_reason) = (Vec::new(), 0, false);
        Self { host, qps, srq, open, before, outstanding, next_id, has_reason }
    }

    fn connect(&self, peer: &Self) {
        let types = match self.srq {
            Some(_) => [QpType::XrcSend, QpType::XrcRecv],
            None => [QpType::Rc; 2],
        };
        let [sender, target] = peer.qps;
        for ((qp, qp_type), to) in self.qps.into_iter().zip(types).zip([target, sender]) {
            let attr = attributes(peer.host.address, to.qpn());
            // A program that waits for receives without a limit could wait for ever.
            let attr = QpAttr { rnr_retry: 3, ..attr };
            self.host.bring_up((qp, qp_type), &attr, QpState::Rts);
            if self.srq.is_none() {
                break;
            }
        }
    }

    /// Returns what the attacker knows of this end: a key, and the number of the queue of receives.
    fn known(&self) -> Known {
        Known { rkey: self.open.rkey.0, srq: self.srq.as_ref().map_or(0, |srq| srq.id().0) }
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
            let sges = [self.host.sge(RECEIVES.start as u64, half)];
            match &self.srq {
                Some(srq) => srq.post(&[RecvRequest { wr_id, sges: &sges }]).expect("taken"),
                None => self.host.post_recv(wr_id, &sges),
            }
        }
    }

    /// Posts an operation of random kind and size to the open region of the peer.
    fn operate(&mut self, rng: &mut Rng, peer: Known) {
        let rkey = Rkey(peer.rkey);
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
        let to = match self.srq {
            Some(_) => Destination::XrcSrq { srq: SrqId(peer.srq) },
            None => Destination::Peer,
        };
        let request = SendRequest { wr_id, to, ..request(op, &list) };
        self.host.post_request(self.qps[0], &request).expect("taken");
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
        self.qps.iter().any(|qp| self.host.state(*qp) == QpState::Err)
    }

    /// Returns whether no operation waits for its peer.
    fn is_done(&self) -> bool {
        self.host.state(self.qps[0]) == QpState::Err || self.waiting(false) == 0
    }

    /// Ends the connection. Afterwards all work requests are complete, except receives that no
    /// message has taken from a shared receive queue.
    fn end(&mut self, now: u64, wire: &Wire) {
        for qp in self.qps {
            self.host.go_to(qp, QpState::Err);
        }
        self.step(now, wire);
        let left = self.srq.as_ref().map_or(0, |srq| srq.len() as usize);
        let waiting = [false, true].map(|is_receive| self.waiting(is_receive));
        assert_eq!(waiting, [0, left], "not completed: {:?}", self.outstanding);
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

/// What an attacker on the path knows of the receiver of a packet.
#[derive(Clone, Copy)]
pub struct Known {
    /// The key of a region that the peer may access.
    pub rkey: u32,
    /// The number of the shared receive queue of an XRC connection.
    pub srq: u32,
}

/// Returns the packets that arrive in place of a packet, and the name of the change.
pub fn on_path(rng: &mut Rng, packet: PacketRun, known: Known) -> (Vec<PacketRun>, &'static str) {
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
                service: Hostile::service_of(packet.bytes[0]),
                srq: if rng.below(8) == 0 { rng.next_u32() } else { known.srq },
                target: Some((
                    known.rkey,
                    rng.below(OPEN.len() as u64),
                    rng.next_u32() >> rng.below(32),
                )),
                ..Hostile::default()
            };
            let forged = forge(rng, packet.from, packet.to, hostile);
            (vec![forged, packet], "added")
        }
    }
}

/// The counts of an attack.
#[derive(Default)]
struct Outcome {
    /// The packets by what happened to them.
    changes: BTreeMap<&'static str, u64>,
    attacked: u64,
    connections: u64,
    failed: u64,
}

/// Attacks one connection of a service from its first operation to its end.
fn attack_connection(rng: &mut Rng, service: QpType, outcome: &mut Outcome) {
    let wire = Wire::default();
    let [mut a, mut b] = [A, B].map(|address| End::new(rng, address, service));
    a.connect(&b);
    b.connect(&a);
    let peers = [b.known(), a.known()];
    // One packet of so many is attacked.
    let rate = 1 << (3 + rng.below(8));
    let (mut flying, mut now, mut posted) = (VecDeque::new(), 1, 0);
    for step in 0.. {
        assert!(step < STEPS, "work requests wait: {:?}, {:?}", a.outstanding, b.outstanding);
        let has_failed = a.has_failed() || b.has_failed();
        let is_over = posted == CONNECTION || step > ATTACK || has_failed;
        if !is_over && a.waiting(false).max(b.waiting(false)) < 8 {
            for (end, peer) in [(&mut a, peers[0]), (&mut b, peers[1])] {
                end.post_receives();
                end.operate(rng, peer);
            }
            posted += 1;
        }
        for end in [&mut a, &mut b] {
            let sent = end.step(now, &wire);
            flying.extend(sent.iter().flat_map(single_packets));
        }
        if is_over && flying.is_empty() && a.is_done() && b.is_done() {
            break;
        }
        let Some(packet) = flying.pop_front() else {
            now += if is_over { QUIET_NS } else { 1 + rng.below(QUIET_NS) };
            continue;
        };
        now += rng.below(2_000);
        let end = if packet.to == a.host.address { &a } else { &b };
        let is_attacked = !is_over && rng.below(rate) == 0;
        let (arriving, change) = match is_attacked {
            true if rng.below(4) == 0 => {
                // Later packets overtake it.
                let place = rng.index(flying.len() + 1);
                flying.insert(place, packet);
                (Vec::new(), "delayed")
            }
            true => on_path(rng, packet, end.known()),
            false => (vec![packet], "untouched"),
        };
        *outcome.changes.entry(change).or_insert(0) += 1;
        outcome.attacked += u64::from(is_attacked);
        for packet in arriving {
            wire.deliver(&end.host.device, end.host.clock.now(), &packet);
        }
    }
    outcome.connections += 1;
    outcome.failed += u64::from(a.has_failed() || b.has_failed());
    for end in [&mut a, &mut b] {
        end.check();
        end.end(now, &wire);
    }
}

#[test]
fn an_attacker_on_the_path_reaches_no_other_memory_and_leaves_no_work_request_waiting() {
    let mut rng = Rng::stream(seed(), 3);
    let wanted = number("URXE_FORGED", FORGED) / 100;
    for (service, name) in [(QpType::Rc, "RC"), (QpType::XrcSend, "XRC")] {
        let mut outcome = Outcome::default();
        while outcome.attacked < wanted {
            attack_connection(&mut rng, service, &mut outcome);
        }
        let Outcome { changes, attacked, connections, failed } = outcome;
        println!(
            "{attacked} attacked packets of {name} on the path: {changes:?}; {failed} of \
             {connections} connections ended"
        );
        assert_eq!(changes.len(), 7, "each change: {changes:?}");
    }
}
