//! The model: what the specification says that verbs do, with nothing beside it. No packet, no
//! time, no network: an operation is carried out whole and at once, each message at its receiver as
//! soon as it is its turn.
//!
//! Where the specification leaves bytes open (a message that was refused halfway may have been
//! written in part), they are listed in
//! [`Model::open`]: the comparison takes over what the implementation has there.

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

/// What a completion must say. Of one in error, the rest is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub wr_id: u64,
    pub status: WcStatus,
    pub qp: usize,
    pub opcode: WcOpcode,
    /// Receives and what brings data back.
    pub len: usize,
    pub imm: Option<u32>,
    pub invalidated: Option<u32>,
    /// Datagrams: who sent it.
    pub from: Option<usize>,
}

impl Done {
    /// The completion of a request that brought no data.
    pub fn new(qp: usize, wr_id: u64, status: WcStatus, opcode: WcOpcode) -> Self {
        Self { wr_id, status, qp, opcode, len: 0, imm: None, invalidated: None, from: None }
    }

    /// The completion of a receive in error.
    fn failed_recv(qp: usize, wr_id: u64, status: WcStatus) -> Self {
        Self::new(qp, wr_id, status, WcOpcode::Recv)
    }

    /// The completion of a receive that a message of `len` bytes filled.
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

/// See the module.
pub struct Model {
    /// Path MTU in bytes.
    pub mtu: usize,
    pub memory: [Vec<u8>; 2],
    pub keys: Keys,
    pub states: Vec<QpState>,
    own: Vec<VecDeque<Recv>>,
    pub shared: Vec<VecDeque<Recv>>,
    /// What an unreliable queue pair took from its shared queue for a message that was then
    /// dropped: it is for the next one.
    held: Vec<Option<Recv>>,
    /// What was posted to send queues that are drained.
    pub waiting: Vec<VecDeque<Send>>,
    /// How many receives a shared queue may hold, and below how many it tells.
    pub sizes: Vec<usize>,
    pub limits: Vec<u32>,
    pub done: BTreeMap<Cq, VecDeque<Done>>,
    /// Completion queues that nobody polls for now.
    pub unpolled: BTreeSet<Cq>,
    pub armed: BTreeMap<Cq, Arm>,
    /// XRC domains and what is in them; what is gone keeps its place.
    pub domains: Vec<Domain>,
    pub members: Vec<Member>,
    /// Who is attached to multicast groups.
    pub groups: [Groups; 2],
    /// Datagrams with another Q_Key that each device counted.
    pub violations: [u16; 2],
    /// Whose event was sent.
    pub notified: Vec<Cq>,
    pub events: Vec<Event>,
    /// Bytes that may be anything: device, range.
    pub open: Vec<(usize, Range<usize>)>,
    /// How often each kind of outcome was met.
    pub outcomes: BTreeMap<&'static str, u64>,
    omitted: Option<OmittedRule>,
}

/// A rule that the model omitted, to see that the comparison notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OmittedRule {
    ProtectionDomains,
    /// That a type 2 window is for the peer of the queue pair that bound it.
    WindowOwners,
    /// That a region grants some things and others not.
    Rights,
    /// That a shared receive queue tells when it runs low.
    Limits,
    Invalidation,
    Flushing,
    Draining,
    /// That reregistration moves a region.
    Places,
    /// That it gives it to another protection domain.
    Domains,
    /// That it grants other things.
    Grants,
    /// That it is refused under windows.
    BoundRegions,
    /// That a shared receive queue gets another size.
    Sizes,
    /// That it keeps what it holds then.
    Contents,
    /// That it gets no smaller than that.
    Holding,
    /// That its limit tells once.
    OneShot,
    /// That an armed completion queue tells once.
    OneEvent,
    /// That one armed for solicited messages keeps silent of others.
    Solicitation,
    /// But tells of errors.
    ErrorsTell,
    /// That what came before the arming is not told.
    Earlier,
    /// That who waits for any completion goes on doing so when he asks for solicited ones.
    Stronger,
    /// That what is in an XRC domain keeps it.
    Members,
    /// That who opens a file's domain again shares it.
    Files,
    /// That a target goes when it was destroyed as often as opened.
    Opens,
    /// That a message reaches the queues of its own XRC domain alone.
    OtherDomains,
    /// That each queue pair of a group gets a copy.
    Copies,
    /// That those of the sender's device do as well.
    Loopback,
    /// That datagrams with another Q_Key are counted.
    Violations,
}

/// How a message ends for its sender, if not well.
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

    /// Carries an operation on queues out. Whether every request was accepted; those on keys are
    /// the scenario's to tell.
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

    /// What `ibv_post_send` itself refuses.
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

    /// To the error state: everything posted is flushed.
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
        let (bytes, landing) = match &send.data {
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
            _ => return self.reliable(qp, send, &bytes, landing),
        }
        Ok(())
    }

    /// A request that is carried out locally has the outcome `done`, which is counted by its name.
    fn local(
        &mut self,
        done: bool,
        [fine, refused]: [&'static str; 2],
        status: WcStatus,
    ) -> Result<(), Refused> {
        self.count(if done { fine } else { refused });
        if done { Ok(()) } else { Err(Refused(status)) }
    }

    /// As whom a message is judged at its receiver, and which queue its receive comes from.
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

    /// The receiver refuses, and its queue pair fails.
    fn refuse(&mut self, peer: usize, event: Event, to_sender: WcStatus) -> Result<(), Refused> {
        self.events.push(event);
        self.fail(peer);
        Err(Refused(to_sender))
    }
}
