//! Executes a plan: devices on the simulated network, their programs, the faults, and the checker.
//!
//! The program of each end posts as soon as its queue has room and its pauses allow, polls after
//! every event, and does not run while its node is stopped. A run has one thread and virtual time,
//! so each plan has one outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use urxe_stack::cq::{AsyncEvent, AsyncEventType, Completion};
use urxe_stack::device::counters::Counter;
use urxe_stack::port::sim::{Fabric, NodeId, Pause, PauseScope, PausedPackets, SimCounters};
use urxe_stack::port::tap::Tap;
use urxe_stack::qp::work_request::{
    Destination, FlushRange, Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_stack::time::Time;
use urxe_wire::PlacementType;

use super::checker::{Checker, Difference};
use super::host::{Host, InjectedBug, address};
use super::keys::ReplacedKey;
use super::model::Model;
use super::peer_loss::PeerLossChecker;
use super::plan::{EndId, Local, Op, Place, Plan, Queue, SendPlan};

/// How long the network continues after the last completion, to reveal late damage, in nanoseconds.
const EXTRA_TIME_NS: u64 = 50_000_000;
/// The start of virtual time in captures: the beginning of 2020, in nanoseconds.
const CAPTURE_EPOCH_NS: u64 = 1_577_836_800_000_000_000;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The file for a capture of all packets.
    pub capture: Option<PathBuf>,
    /// The bug that is injected into every device.
    pub bug: Option<InjectedBug>,
    /// A node that falls silent for good.
    pub silence: Option<Silence>,
}

/// A node that neither sends nor receives from one time on.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The device of the node.
    pub device: usize,
    /// The start, in nanoseconds.
    pub from_ns: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The differences from the model.
    pub differences: Vec<Difference>,
    /// Other faults.
    pub faults: Vec<String>,
    /// The time of the last completion.
    pub finished: Time,
    /// Counters of the simulated network.
    pub packets: SimCounters,
    /// The sums of the devices' counters.
    pub counters: Vec<(Counter, u64)>,
    /// The number of keys that were invalidated and replaced.
    pub replaced: usize,
    /// The number of those that belong to type 1 windows, which the owner bound again.
    pub rebound: usize,
    /// The number of ends that broke because a node fell silent.
    pub broken: usize,
    /// The hash of all events, which is equal for equal runs.
    pub trace_hash: u64,
}

impl Outcome {
    /// Returns whether the run has neither differences nor faults.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.differences.is_empty() && self.faults.is_empty()
    }

    /// Returns a counter, summed over the devices.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.iter().filter(|(which, _)| *which == counter).map(|(_, value)| value).sum()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        for difference in &self.differences {
            writeln!(f, "  {difference}")?;
        }
        writeln!(f, "  at {}: {:?}", self.finished, self.packets)?;
        for (counter, value) in self.counters.iter().filter(|(_, value)| *value > 0) {
            write!(f, "  {}={value}", counter.name())?;
        }
        Ok(())
    }
}

struct Run<'a> {
    plan: &'a Plan,
    checker: Checker<'a>,
    silence: Option<Silence>,
    /// The ends that lose their peer by the silence.
    losses: BTreeMap<EndId, PeerLossChecker>,
    fabric: Fabric<Host>,
    nodes: Vec<NodeId>,
    ends: Vec<(EndId, Posted)>,
    faults: Vec<String>,
    toggles_done: usize,
    healed: bool,
    completions: Vec<Completion>,
    /// Keys that peers invalidated or released, with their successors.
    replaced: Vec<(usize, ReplacedKey)>,
}

/// The progress of the program of one end.
#[derive(Clone, Copy, Debug, Default)]
struct Posted {
    sends: usize,
    recvs: usize,
    next_send: Time,
    next_recv: Time,
}

/// Executes `plan`.
///
/// # Panics
/// If the stack refuses the setup of the plan, or the capture cannot be created.
#[must_use]
pub fn run(plan: &Plan, options: &Options) -> Outcome {
    let model = Model::new(plan);
    let mut run = Run::new(plan, &model, options);
    let finished = run.drive();
    run.conclude(finished)
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, model: &'a Model, options: &Options) -> Self {
        let mut fabric = Fabric::new(plan.seed);
        if let Some(path) = &options.capture {
            let tap =
                Tap::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            fabric.network().set_tap(Arc::new(tap), CAPTURE_EPOCH_NS);
        }
        let mut nodes = Vec::new();
        for device in 0..plan.devices.len() {
            let host = Host::new(plan, device, options.bug);
            let node = fabric
                .add(host, &[address(plan, device)])
                .expect("each device has an address of its own");
            fabric.network().set_node_config(node, plan.devices[device].socket.clone());
            nodes.push(node);
        }
        let host = |device: usize| fabric.host(nodes[device]).expect("a node of this fabric");
        for (id, end) in plan.ends() {
            let peer = host(plan.end(id.peer()).device).qps[&id.peer()].handle.qpn();
            host(end.device).connect(plan, id, peer);
        }
        let rkeys = |device| host(device).mrs.iter().map(|mr| mr.rkey.value()).collect();
        let mut checker = Checker::new(plan, model, (0..plan.devices.len()).map(rkeys).collect());
        let silence = options.silence;
        let mut losses = BTreeMap::new();
        if let Some(Silence { device, from_ns }) = silence {
            let loses =
                |id: EndId| plan.end(id).device == device || plan.end(id.peer()).device == device;
            for (id, _) in plan.ends().filter(|(id, _)| loses(*id)) {
                checker.exempt(id);
                losses.insert(id, PeerLossChecker::new(id, Time::from_ns(from_ns)));
            }
        }
        let ends = plan.ends().map(|(id, _)| (id, Posted::default())).collect();
        let run = Self {
            plan,
            checker,
            silence,
            losses,
            fabric,
            nodes,
            ends,
            faults: Vec::new(),
            toggles_done: 0,
            healed: false,
            completions: Vec::new(),
            replaced: Vec::new(),
        };
        run.set_link_faults();
        run.plan_pauses();
        run.start_silence();
        run
    }

    fn start_silence(&self) {
        let Some(Silence { device, from_ns }) = self.silence else { return };
        let (scope, packets) = (PauseScope::Node(self.nodes[device]), PausedPackets::Drop);
        let (from, until) = (Time::from_ns(from_ns), Time::NEVER);
        self.fabric.network().pause(Pause { scope, packets, from, until });
    }

    fn host(&self, device: usize) -> &Host {
        self.fabric.host(self.nodes[device]).expect("a node of this fabric")
    }

    fn set_link_faults(&self) {
        for (from, to, faults) in &self.plan.faults.links {
            self.fabric.network().set_faults(self.nodes[*from], self.nodes[*to], faults.clone());
        }
    }

    fn plan_pauses(&self) {
        for pause in &self.plan.faults.pauses {
            let node = self.nodes[pause.node];
            let scope = match pause.to {
                Some(to) => PauseScope::Link { from: node, to: self.nodes[to] },
                None => PauseScope::Node(node),
            };
            let packets = if pause.hold { PausedPackets::Hold } else { PausedPackets::Drop };
            let (from, until) = (Time::from_ns(pause.from_ns), Time::from_ns(pause.until_ns));
            self.fabric.network().pause(Pause { scope, packets, from, until });
        }
    }

    /// Runs until all work requests have completed, or time is up. Returns that time.
    fn drive(&mut self) -> Time {
        let faults = &self.plan.faults;
        let deadline = Time::from_ns(faults.end_ns + faults.liveness_ns);
        loop {
            let now = self.fabric.now();
            self.switch_faults(now);
            let next = self.run_programs(now);
            // Connections that break need their full time.
            let done = self.checker.all_complete() && self.losses.is_empty();
            if done
                || now >= deadline
                || !self.checker.differences().is_empty()
                || !self.faults.is_empty()
            {
                return now;
            }
            let limit = [next, self.next_switch(), Some(deadline)]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(deadline);
            let stepped = match self.fabric.step(limit) {
                Ok(true) => Ok(()),
                Ok(false) => self.fabric.run_until(limit),
                Err(stalled) => Err(stalled),
            };
            if let Err(stalled) = stepped {
                self.faults.push(stalled.to_string());
            }
        }
    }

    fn next_switch(&self) -> Option<Time> {
        let toggle = self.plan.faults.toggles_ns.get(self.toggles_done).copied();
        let end = (!self.healed).then_some(self.plan.faults.end_ns);
        toggle.into_iter().chain(end).min().map(Time::from_ns)
    }

    fn switch_faults(&mut self, now: Time) {
        if self.healed {
            return;
        }
        if now.as_ns() >= self.plan.faults.end_ns {
            self.fabric.network().heal();
            self.start_silence();
            self.healed = true;
            self.toggles_done = self.plan.faults.toggles_ns.len();
            return;
        }
        while self
            .plan
            .faults
            .toggles_ns
            .get(self.toggles_done)
            .is_some_and(|&at| at <= now.as_ns())
        {
            self.toggles_done += 1;
            if self.toggles_done.is_multiple_of(2) {
                self.set_link_faults();
            } else {
                self.remove_link_faults();
            }
        }
    }

    /// Ends the faults of links for a while. Pauses end by themselves.
    fn remove_link_faults(&self) {
        for (from, to, faults) in &self.plan.faults.links {
            self.fabric.network().set_faults(self.nodes[*from], self.nodes[*to], faults.healed());
        }
    }

    /// Lets the programs of all running nodes poll and post. Returns the next time at which one of
    /// them wants to act.
    fn run_programs(&mut self, now: Time) -> Option<Time> {
        let mut wake: Option<Time> = None;
        for index in 0..self.ends.len() {
            let (end, mut posted) = self.ends[index];
            let node = self.nodes[self.plan.end(end).device];
            if self.fabric.network().stopped_until(node).is_some() {
                continue;
            }
            self.poll(end);
            if self.losses.get(&end).is_some_and(PeerLossChecker::has_failed) {
                continue;
            }
            let next =
                [self.post_recvs(end, &mut posted, now), self.post_sends(end, &mut posted, now)];
            self.ends[index].1 = posted;
            wake = wake.into_iter().chain(next.into_iter().flatten()).min();
        }
        wake
    }

    fn poll(&mut self, end: EndId) {
        let device = self.plan.end(end).device;
        let batch = self.plan.devices[device].poll_batch;
        let qp = self.host(device).qps[&end].clone();
        let mut completions = std::mem::take(&mut self.completions);
        completions.resize(batch, Completion::default());
        for cq in [&qp.send_cq, &qp.recv_cq] {
            loop {
                let count = match cq.poll(&mut completions) {
                    Ok(count) => count,
                    Err(error) => {
                        self.faults.push(format!("{end}: {error}"));
                        0
                    }
                };
                for completion in &completions[..count] {
                    self.check_completion(device, completion);
                }
                if count < batch {
                    break;
                }
            }
        }
        self.completions = completions;
    }

    fn check_completion(&mut self, device: usize, completion: &Completion) {
        let host = self.fabric.host(self.nodes[device]).expect("a node of this fabric");
        // Queue pairs may share a completion queue.
        let owner = host.qps.iter().find(|(_, qp)| qp.handle.qpn() == completion.qp_num);
        let Some((&end, _)) = owner else {
            self.faults
                .push(format!("device {device}: completion of unknown QP {}", completion.qp_num));
            return;
        };
        if let Some(rkey) = completion.invalidated_rkey() {
            match host.replace_key(end, rkey) {
                Ok(replaced) => self.replaced.push((device, replaced)),
                Err(fault) => self.faults.push(format!("{end}: {fault}")),
            }
        }
        let index = self.recvs_complete(end);
        let is_next = completion.wr_id == self.plan.wr_id(end, Queue::Recv, index);
        if is_next
            && completion.status.is_success()
            && let Some(region) = self.checker.released(end, index)
        {
            match host.rebind(end, region) {
                Ok(replaced) => self.replaced.push((device, replaced)),
                Err(fault) => self.faults.push(format!("{end}: {fault}")),
            }
        }
        if let Some(loss) = self.losses.get_mut(&end) {
            return loss.completion(self.plan, completion, self.fabric.now());
        }
        self.checker.completion(end, completion, &mut |other, range| {
            assert_eq!(other, device, "completions show the memory of their own device");
            host.read(range)
        });
    }

    fn sends_complete(&self, end: EndId) -> usize {
        self.losses
            .get(&end)
            .map_or_else(|| self.checker.sends_complete(end), PeerLossChecker::sends_complete)
    }

    fn recvs_complete(&self, end: EndId) -> usize {
        self.losses
            .get(&end)
            .map_or_else(|| self.checker.recvs_complete(end), PeerLossChecker::recvs_complete)
    }

    fn post_recvs(&mut self, end: EndId, posted: &mut Posted, now: Time) -> Option<Time> {
        let plan = self.plan.end(end);
        while posted.recvs < plan.recvs.len() {
            let outstanding = posted.recvs - self.recvs_complete(end);
            if outstanding >= plan.recv_depth as usize {
                return None;
            }
            let at_once = posted.recvs < plan.recvs_at_start;
            if !at_once && posted.next_recv > now {
                return Some(posted.next_recv);
            }
            let host = self.host(plan.device);
            let sges: Vec<Sge> =
                plan.recvs[posted.recvs].pieces.iter().map(|&piece| host.sge(piece)).collect();
            let wr_id = self.plan.wr_id(end, Queue::Recv, posted.recvs);
            let request = RecvRequest { wr_id, sges: &sges };
            let result = host.device().post_recv(now, host.qps[&end].handle, &[request]);
            if let Err((_, error)) = result {
                self.faults.push(format!("{end} recv {}: {error}", posted.recvs));
                return None;
            }
            posted.recvs += 1;
            // The first receives are posted at once; the pause follows them and each later one.
            posted.next_recv = now.plus_ns(plan.recv_pause_ns);
        }
        None
    }

    fn post_sends(&mut self, end: EndId, posted: &mut Posted, now: Time) -> Option<Time> {
        let plan = self.plan.end(end);
        while posted.sends < plan.sends.len() {
            if posted.sends - self.sends_complete(end) >= plan.send_depth as usize {
                return None;
            }
            if posted.next_send > now {
                return Some(posted.next_send);
            }
            let send = &plan.sends[posted.sends];
            let result = self.post_send(end, posted.sends, send, now);
            if let Err(error) = result {
                self.faults.push(format!("{end} send {}: {error}", posted.sends));
                return None;
            }
            posted.sends += 1;
            posted.next_send = now.plus_ns(plan.send_pause_ns);
        }
        None
    }

    fn post_send(
        &self,
        end: EndId,
        index: usize,
        send: &SendPlan,
        now: Time,
    ) -> Result<(), String> {
        let host = self.host(self.plan.end(end).device);
        let peer = self.host(self.plan.end(end.peer()).device);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, send.signaled);
        flags.set(SendFlags::FENCE, send.fence);
        flags.set(SendFlags::SOLICITED, send.solicited);
        let (sges, parts): (Vec<Sge>, Vec<&[u8]>) = match &send.local {
            Local::Pieces(pieces) => {
                (pieces.iter().map(|&piece| host.sge(piece)).collect(), Vec::new())
            }
            Local::Inline(parts) => (Vec::new(), parts.iter().map(|part| &part[..]).collect()),
        };
        let payload = match send.local {
            Local::Pieces(_) => Payload::Sges(&sges),
            Local::Inline(_) => {
                flags |= SendFlags::INLINE;
                Payload::Inline(&parts)
            }
        };
        let wr_id = self.plan.wr_id(end, Queue::Send, index);
        let request = SendRequest {
            wr_id,
            op: send_op(&send.op, peer),
            to: Destination::Peer,
            flags,
            payload,
        };
        let posted = host.device().post_send(now, host.qps[&end].handle, &[request]);
        posted.map_err(|(_, error)| error.to_string())
    }

    /// Runs the network until no packet is left, then compares all memory and collects the
    /// counters.
    fn conclude(mut self, finished: Time) -> Outcome {
        self.fabric.network().heal();
        if let Err(stalled) = self.fabric.run_until(finished.plus_ns(EXTRA_TIME_NS)) {
            self.faults.push(stalled.to_string());
        }
        for index in 0..self.ends.len() {
            self.poll(self.ends[index].0);
        }
        self.events();
        // A late packet with a former key must not have changed the new key.
        let hosts: Vec<&Host> = self.fabric.hosts().collect();
        let stale = self
            .replaced
            .iter()
            .filter_map(|(device, replaced)| hosts[*device].check(replaced).err());
        self.faults.extend(stale);
        for (end, posted) in &self.ends {
            if let Some(loss) = self.losses.get_mut(end) {
                loss.finish(self.plan, posted.sends, posted.recvs);
                self.faults.extend_from_slice(loss.faults());
            }
        }
        let images: Vec<Vec<u8>> = (0..self.nodes.len())
            .map(|device| self.host(device).read(0..self.plan.devices[device].memory_bytes))
            .collect();
        self.checker.finish(&images);
        let snapshots =
            self.fabric.hosts().map(|host| host.device().counters().snapshot().collect());
        let counters = snapshots.reduce(|sum: Vec<(Counter, u64)>, next| {
            sum.into_iter().zip(next).map(|((counter, a), (_, b))| (counter, a + b)).collect()
        });
        let packets = self.fabric.counters();
        if packets.bad_run + packets.too_big > 0 {
            self.faults.push(format!("the network refused runs: {packets:?}"));
        }
        Outcome {
            differences: self.checker.differences().to_vec(),
            faults: self.faults,
            finished,
            packets,
            counters: counters.unwrap_or_default(),
            replaced: self.replaced.len(),
            rebound: self.replaced.iter().filter(|(_, replaced)| replaced.is_rebound()).count(),
            broken: self.losses.values().filter(|loss| loss.has_failed()).count(),
            trace_hash: self.fabric.network().trace_hash(),
        }
    }

    /// Checks that no asynchronous event occurred, except "communication established".
    fn events(&mut self) {
        for device in 0..self.nodes.len() {
            let events = Arc::clone(self.host(device).device().events());
            while let Some(event) = events.next_event() {
                events.ack(&event);
                if event.event_type() != AsyncEventType::CommEst {
                    self.unexpected(device, &event);
                }
            }
        }
    }

    fn unexpected(&mut self, device: usize, event: &AsyncEvent) {
        self.faults.push(format!("device {device}: asynchronous event: {event}"));
    }
}

fn send_op(op: &Op, peer: &Host) -> SendOp {
    let remote = |place: Place| peer.remote(place);
    match *op {
        Op::Send | Op::SendRelease(_) => SendOp::Send,
        Op::SendImm(imm) => SendOp::SendImm { imm },
        Op::SendInvalidate(region) => SendOp::SendInvalidate { rkey: peer.mrs[region].rkey },
        Op::Write(place) => SendOp::Write { remote: remote(place) },
        Op::WriteImm(place, imm) => SendOp::WriteImm { remote: remote(place), imm },
        Op::Read(place) => SendOp::Read { remote: remote(place) },
        Op::CompareSwap { at, compare, swap } => {
            SendOp::CompareSwap { remote: remote(at), compare, swap }
        }
        Op::FetchAdd { at, add } => SendOp::FetchAdd { remote: remote(at), add },
        Op::AtomicWrite(at) => SendOp::AtomicWrite { remote: remote(at) },
        Op::Flush { at, len } => SendOp::Flush {
            remote: remote(at),
            placement: PlacementType::GLOBAL_VISIBILITY,
            range: len.map_or(FlushRange::Region, FlushRange::Bytes),
        },
    }
}
