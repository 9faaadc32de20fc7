//! The model: the verbs as the specification defines them, without packets, time or network. An
//! operation is executed completely and at once, each message at its receiver in its turn.
//!
//! Where the specification leaves bytes open (a message that was refused halfway may have been
//! written in part), [`Model::open`] lists them. The comparison then accepts the implementation's
//! bytes.

mod datagrams;
mod domains;
mod memory;
mod queues;
mod reliable;
mod unreliable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use clap::ValueEnum;
use urxe_stack::cq::{WcOpcode, WcStatus};
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpState, QpType};
use urxe_stack::qp::work_request::SendOp;

use crate::keys::{Accessor, Keys};
use crate::operation::{
    Arm, Cq, DEPTH, Data, MEMORY, Operation, QPS, Queue, Recv, SRQS, Send, Source, To,
};

pub use datagrams::Groups;
pub use domains::{Domain, Member};

/// The expected completion. For an error, all later fields are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub wr_id: u64,
    pub status: WcStatus,
    pub qp: usize,
    pub opcode: WcOpcode,
    /// The length of a received message or of returned data, in bytes.
    pub len: usize,
    pub imm: Option<u32>,
    pub invalidated: Option<u32>,
    /// The sender of a datagram.
    pub from: Option<usize>,
}

impl Done {
    /// Returns the completion of a request without returned data.
    pub fn new(qp: usize, wr_id: u64, status: WcStatus, opcode: WcOpcode) -> Self {
        Self { wr_id, status, qp, opcode, len: 0, imm: None, invalidated: None, from: None }
    }

    /// Returns the completion of a receive in error.
    fn failed_recv(qp: usize, wr_id: u64, status: WcStatus) -> Self {
        Self::new(qp, wr_id, status, WcOpcode::Recv)
    }

    /// Returns the completion of a receive that a message of `len` bytes filled.
    fn received(qp: usize, wr_id: u64, len: usize, imm: Option<u32>) -> Self {
        Self { len, imm, ..Self::new(qp, wr_id, WcStatus::Success, WcOpcode::Recv) }
    }
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Fatal(usize),
    RequestError(usize),
    AccessError(usize),
    LastWqe(usize),
    Limit(usize),
    Drained(usize),
}

/// The state of both devices as the specification defines it.
pub struct Model {
    /// The path MTU, in bytes.
    pub mtu: usize,
    pub memory: [Vec<u8>; 2],
    pub keys: Keys,
    pub states: Vec<QpState>,
    own: Vec<VecDeque<Recv>>,
    pub shared: Vec<VecDeque<Recv>>,
    /// The receive that an unreliable queue pair took from its shared queue for a dropped message.
    /// The next message uses it.
    held: Vec<Option<Recv>>,
    /// Sends that were posted to drained queues.
    pub waiting: Vec<VecDeque<Send>>,
    /// The sizes of the shared receive queues, and the limits below which they raise an event.
    pub sizes: Vec<usize>,
    pub limits: Vec<u32>,
    pub done: BTreeMap<Cq, VecDeque<Done>>,
    /// Completion queues that are currently not polled.
    pub unpolled: BTreeSet<Cq>,
    pub armed: BTreeMap<Cq, Arm>,
    /// XRC domains and their members. Removed ones keep their indices.
    pub domains: Vec<Domain>,
    pub members: Vec<Member>,
    /// The members of the multicast groups.
    pub groups: [Groups; 2],
    /// The number of datagrams with another Q_Key, by device.
    pub violations: [u16; 2],
    /// The completion queues whose event was raised.
    pub notified: Vec<Cq>,
    pub events: Vec<Event>,
    /// Bytes that may have any value, by device.
    pub open: Vec<(usize, Range<usize>)>,
    /// The number of occurrences of each outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    omitted: Option<OmittedRule>,
}

/// A rule that the model omits, to prove that the comparison detects the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OmittedRule {
    ProtectionDomains,
    /// A type 2 window serves only the peer of the queue pair that bound it.
    WindowOwners,
    /// A region grants some rights only.
    Rights,
    /// A shared receive queue raises an event below its limit.
    Limits,
    Invalidation,
    Flushing,
    Draining,
    /// Reregistration moves a region.
    Places,
    /// Reregistration changes a region's protection domain.
    Domains,
    /// Reregistration changes a region's rights.
    Grants,
    /// Reregistration fails for a region with bound windows.
    BoundRegions,
    /// A shared receive queue can be resized.
    Sizes,
    /// A resized shared receive queue keeps its receives.
    Contents,
    /// A shared receive queue cannot be smaller than its contents.
    Holding,
    /// A limit raises one event.
    OneShot,
    /// An armed completion queue raises one event.
    OneEvent,
    /// A queue armed for solicited completions raises no event for others.
    Solicitation,
    /// A queue armed for solicited completions raises an event for errors.
    ErrorsTell,
    /// Completions from before the arming raise no event.
    Earlier,
    /// Arming for solicited completions does not weaken an arming for any completion.
    Stronger,
    /// An XRC domain with members cannot be closed.
    Members,
    /// Opening a file's domain again shares it.
    Files,
    /// A target is removed when it was destroyed as often as opened.
    Opens,
    /// A message reaches only the queues of its own XRC domain.
    OtherDomains,
    /// Each queue pair of a group gets a copy.
    Copies,
    /// Queue pairs of the sender's device get a copy as well.
    Loopback,
    /// Datagrams with another Q_Key are counted.
    Violations,
}

/// The error status of a message at its sender.
struct Refused(WcStatus);

impl Model {
    pub fn new(memory: [Vec<u8>; 2], mtu: usize, omitted: Option<OmittedRule>) -> Self {
        assert!(memory.iter().all(|memory| memory.len() == MEMORY));
        Self {
            mtu,
            memory,
            keys: Keys::default(),
            states: vec![QpState::Rts; QPS.len()],
            own: vec![VecDeque::new(); QPS.len()],
            shared: vec![VecDeque::new(); SRQS.len()],
            held: vec![None; QPS.len()],
            waiting: vec![VecDeque::new(); QPS.len()],
            sizes: vec![DEPTH; SRQS.len()],
            limits: vec![0; SRQS.len()],
            done: BTreeMap::new(),
            unpolled: BTreeSet::new(),
            armed: BTreeMap::new(),
            domains: vec![Domain { device: 1, file: Some(0), opens: 1 }],
            members: Member::of_the_scenario(),
            groups: Default::default(),
            violations: [0; 2],
            notified: Vec::new(),
            events: Vec::new(),
            open: Vec::new(),
            outcomes: BTreeMap::new(),
            omitted,
        }
    }

    pub fn count(&mut self, outcome: &'static str) {
        *self.outcomes.entry(outcome).or_default() += 1;
    }

    /// Executes an operation on queues. Returns whether every request was accepted. The scenario
    /// handles operations on keys.
    pub fn apply(&mut self, operation: &Operation) -> bool {
        match operation {
            Operation::Send { qp, list } => list.iter().all(|send| self.post_send(*qp, send)),
            Operation::Recv { queue, list } => list.iter().all(|recv| self.post_recv(*queue, recv)),
            Operation::Fail { qp } => {
                self.fail(*qp);
                true
            }
            Operation::Arm { cq, arm } => self.arm(*cq, *arm),
            Operation::Poll { cq, polled } => {
                if *polled {
                    self.unpolled.remove(cq)
                } else {
                    self.unpolled.insert(*cq)
                }
            }
            Operation::Drain { qp } => {
                self.states[*qp] = QpState::Sqd;
                self.events.push(Event::Drained(*qp));
                true
            }
            Operation::Resume { qp } => {
                self.states[*qp] = QpState::Rts;
                let waiting = std::mem::take(&mut self.waiting[*qp]);
                waiting.iter().all(|send| self.post_send(*qp, send))
            }
            Operation::Restart { qp } => {
                self.restart(*qp);
                true
            }
            _ => true,
        }
    }

    fn restart(&mut self, qp: usize) {
        if self.states[qp] == QpState::Sqe {
            self.states[qp] = QpState::Rts;
            return;
        }
        for end in [Some(qp), QPS[qp].peer].into_iter().flatten() {
            self.own[end].clear();
            self.waiting[end].clear();
            self.held[end] = None;
            self.states[end] = QpState::Rts;
            self.discard_completions(end);
        }
    }

    /// Returns whether `ibv_post_send` accepts a request.
    fn is_accepted(&self, qp: usize, send: &Send) -> bool {
        let qp_type = QPS[qp].qp_type;
        let fits = match qp_type {
            QpType::Rc | QpType::XrcSend => true,
            QpType::Uc => matches!(
                send.op,
                SendOp::Send
                    | SendOp::SendImm { .. }
                    | SendOp::Write { .. }
                    | SendOp::WriteImm { .. }
            ),
            QpType::Ud => {
                matches!(send.op, SendOp::Send | SendOp::SendImm { .. }) && send.len() <= self.mtu
            }
            _ => false,
        };
        let aligned = match send.op {
            SendOp::CompareSwap { remote, .. }
            | SendOp::FetchAdd { remote, .. }
            | SendOp::AtomicWrite { remote } => remote.addr.is_multiple_of(8) && send.len() == 8,
            _ => true,
        };
        fits && aligned
    }

    fn post_send(&mut self, qp: usize, send: &Send) -> bool {
        if !self.is_accepted(qp, send) {
            self.count("a send refused");
            return false;
        }
        if self.states[qp] == QpState::Sqd && self.omitted != Some(OmittedRule::Draining) {
            if self.waiting[qp].len() == DEPTH {
                return false;
            }
            self.count("a send that waits");
            self.waiting[qp].push_back(send.clone());
            return true;
        }
        let unreliable = matches!(QPS[qp].qp_type, QpType::Uc | QpType::Ud);
        let outcome = match self.states[qp] {
            QpState::Err | QpState::Sqe if self.omitted == Some(OmittedRule::Flushing) => Ok(()),
            QpState::Err | QpState::Sqe => Err(Refused(WcStatus::WrFlushErr)),
            _ => self.carry_out(qp, send),
        };
        match outcome {
            Ok(()) => {
                self.count("a send done");
                if send.signaled {
                    self.send_ends(qp, send, WcStatus::Success);
                }
            }
            Err(Refused(status)) => {
                self.count(status.as_str());
                self.send_ends(qp, send, status);
                if status != WcStatus::WrFlushErr && unreliable {
                    self.states[qp] = QpState::Sqe;
                } else if status != WcStatus::WrFlushErr {
                    self.fail(qp);
                }
            }
        }
        true
    }

    fn send_ends(&mut self, qp: usize, send: &Send, status: WcStatus) {
        let len = if status.is_success() && send.op.returns_data() { send.len() } else { 0 };
        let done = Done { len, ..Done::new(qp, send.wr_id, status, send.op.wc_opcode()) };
        self.complete(Cq::Send(qp), done, false);
    }

    /// Moves a queue pair to the error state, which flushes all posted requests.
    fn fail(&mut self, qp: usize) {
        let was = std::mem::replace(&mut self.states[qp], QpState::Err);
        for send in std::mem::take(&mut self.waiting[qp]) {
            self.count("a send that waited flushed");
            self.send_ends(qp, &send, WcStatus::WrFlushErr);
        }
        let held = self.held[qp].take().into_iter();
        for recv in held.chain(std::mem::take(&mut self.own[qp])) {
            self.count("a receive flushed");
            self.receive_ends(qp, recv.wr_id, WcStatus::WrFlushErr);
        }
        if was != QpState::Err && matches!(QPS[qp].source, Source::Shared(_)) {
            self.count("last WQE reached");
            self.events.push(Event::LastWqe(qp));
        }
    }

    fn carry_out(&mut self, qp: usize, send: &Send) -> Result<(), Refused> {
        let plan = &QPS[qp];
        let own = Accessor { device: plan.device, pd: plan.pd, qp: None };
        match send.op {
            SendOp::BindMw(bind) => {
                let bound = self.keys.bind(plan.device, plan.pd, qp, &bind);
                return self.local(bound, ["bound", "bind refused"], WcStatus::MwBindErr);
            }
            SendOp::RegMr { key, access } => {
                let registered = self.keys.register_fast(plan.device, plan.pd, key.value(), access);
                return self.local(
                    registered,
                    ["registered", "registration refused"],
                    WcStatus::LocQpOpErr,
                );
            }
            SendOp::LocalInv { rkey } => {
                let gone = self.invalidate(qp, plan.pd, rkey.value(), false);
                return self.local(
                    gone,
                    ["invalidated by itself", "local invalidation refused"],
                    WcStatus::LocQpOpErr,
                );
            }
            _ => {}
        }
        let (bytes, destination) = match &send.data {
            Data::Pieces(pieces) if send.op.returns_data() => {
                (Vec::new(), self.places(own, pieces, Access::LOCAL_WRITE))
            }
            Data::Pieces(pieces) => {
                let places = self.places(own, pieces, Access::empty());
                let places = places.map_err(|_| Refused(WcStatus::LocProtErr))?;
                let memory = &self.memory[plan.device];
                let bytes = places.into_iter().flat_map(|place| &memory[place]).copied().collect();
                (bytes, Ok(Vec::new()))
            }
            Data::Inline(_) if send.op.returns_data() => unreachable!("inline data with a READ"),
            Data::Inline(bytes) => (bytes.clone(), Ok(Vec::new())),
        };
        match plan.qp_type {
            QpType::Ud => self.datagram(qp, send, &bytes),
            QpType::Uc => self.unreliable(qp, send, &bytes),
            _ => return self.reliable(qp, send, &bytes, destination),
        }
        Ok(())
    }

    /// Counts the outcome of a local request by its name, and returns the status.
    fn local(
        &mut self,
        done: bool,
        [fine, refused]: [&'static str; 2],
        status: WcStatus,
    ) -> Result<(), Refused> {
        self.count(if done { fine } else { refused });
        if done { Ok(()) } else { Err(Refused(status)) }
    }

    /// Returns the accessor of a message at its receiver, and the queue of its receive.
    fn reach(&self, peer: usize, send: &Send) -> Option<(Accessor, Queue)> {
        let plan = &QPS[peer];
        let (pd, queue) = match (plan.source, send.to) {
            (Source::Own, _) => (plan.pd, Queue::Qp(peer)),
            (Source::Shared(srq), _) => (plan.pd, Queue::Srq(srq)),
            (Source::None, To::Srq(Some(srq))) if SRQS[srq].is_xrc => {
                (SRQS[srq].pd, Queue::Srq(srq))
            }
            (Source::None, To::OtherDomain(_))
                if self.omitted == Some(OmittedRule::OtherDomains) =>
            {
                (0, Queue::Srq(2))
            }
            _ => return None,
        };
        Some((Accessor { device: plan.device, pd, qp: Some(peer) }, queue))
    }

    /// Fails the receiver's queue pair, and returns the error of the sender.
    fn refuse(&mut self, peer: usize, event: Event, to_sender: WcStatus) -> Result<(), Refused> {
        self.events.push(event);
        self.fail(peer);
        Err(Refused(to_sender))
    }
}
