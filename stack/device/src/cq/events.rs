//! Asynchronous events: what happens to a queue pair, completion queue, shared receive queue, port
//! or device beside the completion of work requests.
//!
//! Numbers and names are those of `enum ibv_event_type` (libibverbs `verbs.h`); IBTA vol. 1,
//! 11.6.3. The queue wakes through [`Wake`] under its lock, like a completion channel
//! ([`wake`](super::wake)), and keeps for each object how many of its events the program took and
//! has not acknowledged: destroying the object waits for those (`ibv_ack_async_event`) and
//! withdraws the ones that nobody took.
//!
//! The queue is bounded. An event equal to one that still waits adds nothing and is dropped, unless
//! the contrary was told in between: a port that went down, up and down is down. Beyond
//! [`AsyncEvents::CAPACITY`] events a new one takes the place of its equal, at the end, and what
//! has none is dropped and counted.
//!
//! Lock order: any of the core's locks before this one. No lock is taken under it.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use urxe_wire::Qpn;

use super::wake::VoidCounts;
use super::{CqId, SrqId, Wake};
use urxe_types::sync::{Condvar, Mutex, lock, wait};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

urxe_types::named_enum! {
    /// The kind of an asynchronous event (`enum ibv_event_type`), named as by `ibv_event_type_str`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum AsyncEventType: as_str, number -> u8 {
        /// A completion queue overran.
        CqErr = 0 => "CQ error",
        /// A queue pair entered the error state for a reason that no work completion can tell.
        QpFatal = 1 => "local work queue catastrophic error",
        /// A responder met an invalid request and its queue pair entered the error state.
        QpReqErr = 2 => "invalid request local work queue error",
        /// A responder met a request that its memory does not allow and its queue pair entered the
        /// error state.
        QpAccessErr = 3 => "local access violation work queue error",
        /// A packet arrived on a queue pair in RTR.
        CommEst = 4 => "communication established",
        /// A queue pair in SQD finished what it had begun to send.
        SqDrained = 5 => "send queue drained",
        /// A connection moved to its alternate path.
        PathMig = 6 => "path migrated",
        /// A connection could not move to its alternate path.
        PathMigErr = 7 => "path migration request error",
        /// The device failed.
        DeviceFatal = 8 => "local catastrophic error",
        /// The port came up.
        PortActive = 9 => "port active",
        /// The port went down.
        PortErr = 10 => "port error",
        /// The port's LID changed.
        LidChange = 11 => "LID change",
        /// The port's partition key table changed.
        PkeyChange = 12 => "P_Key change",
        /// The port's subnet manager changed.
        SmChange = 13 => "SM change",
        /// A shared receive queue failed. Never raised here: such a queue is memory of this
        /// process, of which no part can fail by itself. A receive that names memory it may not use
        /// fails the queue pair that took it, as the specification has it for the responder, and
        /// leaves the queue to the others.
        SrqErr = 14 => "SRQ catastrophic error",
        /// A shared receive queue holds fewer requests than its limit.
        SrqLimitReached = 15 => "SRQ limit reached",
        /// A queue pair on a shared receive queue will take no more from it.
        QpLastWqeReached = 16 => "last WQE reached",
        /// The subnet manager asks for a new registration.
        ClientReregister = 17 => "client reregistration",
        /// The port's GID table changed.
        GidChange = 18 => "GID table change",
        /// A work queue failed.
        WqFatal = 19 => "WQ fatal",
    }
}

/// An asynchronous event and the object it concerns.
///
/// One variant an object, so that an event about a port cannot name a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncEvent {
    /// About a completion queue.
    Cq(CqEventType, CqId),
    /// About a queue pair.
    Qp(QpEventType, Qpn),
    /// About a shared receive queue.
    Srq(SrqEventType, SrqId),
    /// About a port, counted from 1.
    Port(PortEventType, u8),
    /// The device failed.
    DeviceFatal,
}

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("[`AsyncEventType::", stringify!($variant), "`]")]
                $variant,
            )*
        }

        impl From<$name> for AsyncEventType {
            fn from(event: $name) -> Self {
                match event {
                    $($name::$variant => Self::$variant,)*
                }
            }
        }
    )*};
}

event_types! {
    /// What happens to a completion queue.
    CqEventType { CqErr }
    /// What happens to a queue pair.
    QpEventType {
        QpFatal QpReqErr QpAccessErr CommEst SqDrained PathMig PathMigErr QpLastWqeReached
    }
    /// What happens to a shared receive queue.
    SrqEventType { SrqErr SrqLimitReached }
    /// What happens to a port.
    PortEventType { PortActive PortErr LidChange PkeyChange SmChange ClientReregister GidChange }
}

impl AsyncEvent {
    /// What happened.
    #[must_use]
    pub fn event_type(&self) -> AsyncEventType {
        match *self {
            Self::Cq(event, _) => event.into(),
            Self::Qp(event, _) => event.into(),
            Self::Srq(event, _) => event.into(),
            Self::Port(event, _) => event.into(),
            Self::DeviceFatal => AsyncEventType::DeviceFatal,
        }
    }

    /// The object whose destruction waits until this event is acknowledged. Ports and devices do
    /// not wait.
    #[must_use]
    pub const fn object(&self) -> Option<EventObject> {
        match *self {
            Self::Cq(_, cq) => Some(EventObject::Cq(cq)),
            Self::Qp(_, qp) => Some(EventObject::Qp(qp)),
            Self::Srq(_, srq) => Some(EventObject::Srq(srq)),
            Self::Port(..) | Self::DeviceFatal => None,
        }
    }

    /// Whether both say the same, or one what the other denies.
    fn has_same_subject(&self, other: &Self) -> bool {
        use PortEventType::{PortActive, PortErr};
        match (self, other) {
            (Self::Port(PortActive | PortErr, port), Self::Port(PortActive | PortErr, same)) => {
                port == same
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.event_type();
        match *self {
            Self::Cq(_, cq) => write!(f, "{what} on CQ {}", cq.0),
            Self::Qp(_, qp) => write!(f, "{what} on QP {qp}"),
            Self::Srq(_, srq) => write!(f, "{what} on SRQ {}", srq.0),
            Self::Port(_, port) => write!(f, "{what} on port {port}"),
            Self::DeviceFatal => write!(f, "{what}"),
        }
    }
}

/// An object that events are about and that can be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventObject {
    /// A completion queue.
    Cq(CqId),
    /// A queue pair.
    Qp(Qpn),
    /// A shared receive queue.
    Srq(SrqId),
}

#[derive(Default)]
struct State {
    waiting: VecDeque<AsyncEvent>,
    /// Events taken and not acknowledged, by object; objects without any are not in here.
    unacknowledged: HashMap<EventObject, u32>,
    lost: u64,
    void_counts: VoidCounts,
}

impl State {
    fn take(&mut self) -> Option<AsyncEvent> {
        let event = self.waiting.pop_front()?;
        if let Some(object) = event.object() {
            *self.unacknowledged.entry(object).or_default() += 1;
        }
        Some(event)
    }
}

/// The asynchronous events of one device, in the order in which they came.
pub struct AsyncEvents {
    wake: Box<dyn Wake>,
    capacity: usize,
    state: Mutex<State>,
    acknowledged: Condvar,
}

impl AsyncEvents {
    /// At most so many events wait; more are dropped and counted in [`lost`](Self::lost).
    pub const CAPACITY: usize = 65_536;

    /// No events. `wake` is called once for each event.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Self {
        Self::with_capacity(wake, Self::CAPACITY)
    }

    fn with_capacity(wake: Box<dyn Wake>, capacity: usize) -> Self {
        Self { wake, capacity, state: Mutex::new(State::default()), acknowledged: Condvar::new() }
    }

    /// Reports an event. Not on the data path: it may allocate and compares with the events that
    /// wait.
    pub fn push(&self, event: AsyncEvent) {
        let mut state = lock(&self.state);
        let mut newest_first = state.waiting.iter().rev();
        if newest_first.find(|other| other.has_same_subject(&event)) == Some(&event) {
            return;
        }
        if state.waiting.len() >= self.capacity {
            // Who reads them all shall at least end with what is so now.
            match state.waiting.iter().position(|other| *other == event) {
                Some(earlier) => {
                    state.waiting.remove(earlier);
                    state.waiting.push_back(event);
                }
                None => state.lost += 1,
            }
            return;
        }
        state.waiting.push_back(event);
        self.wake.wake();
    }

    /// Takes the oldest event, if there is one. It must be acknowledged ([`ack`](Self::ack)):
    /// destroying its object waits for that.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        let mut state = lock(&self.state);
        let event = state.take()?;
        state.void_counts.withdraw(&*self.wake, 1);
        Some(event)
    }

    /// Like [`next_event`](Self::next_event), for a reader that took one count of the waker for it.
    /// `None`: the event was withdrawn in between, and the reader takes another count.
    pub fn next_event_for_count(&self) -> Option<AsyncEvent> {
        let mut state = lock(&self.state);
        if state.void_counts.consume() { state.take() } else { None }
    }

    /// Acknowledges one event that [`next_event`](Self::next_event) returned. Once too often does
    /// nothing.
    pub fn ack(&self, event: &AsyncEvent) {
        let Some(object) = event.object() else { return };
        let mut state = lock(&self.state);
        let Some(count) = state.unacknowledged.get_mut(&object) else { return };
        *count -= 1;
        if *count == 0 {
            state.unacknowledged.remove(&object);
            drop(state);
            self.acknowledged.notify_all();
        }
    }

    /// Withdraws the events about `object` that nobody took and waits until the others are
    /// acknowledged: what destroying an object does. The caller sees to it that no more events
    /// about it come.
    pub fn retire(&self, object: EventObject) {
        let mut state = lock(&self.state);
        self.withdraw(&mut state, object);
        while state.unacknowledged.contains_key(&object) {
            state = wait(&self.acknowledged, state);
        }
    }

    /// Like [`retire`](Self::retire), but forgets the events that are not acknowledged: for objects
    /// that go away without anybody asking.
    pub fn retire_without_wait(&self, object: EventObject) {
        let mut state = lock(&self.state);
        self.withdraw(&mut state, object);
        if state.unacknowledged.remove(&object).is_some() {
            drop(state);
            self.acknowledged.notify_all();
        }
    }

    /// Number of events that nobody took yet.
    #[must_use]
    pub fn waiting_events(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Number of events dropped because the program did not take the earlier ones.
    #[must_use]
    pub fn lost(&self) -> u64 {
        lock(&self.state).lost
    }

    fn withdraw(&self, state: &mut State, object: EventObject) {
        let before = state.waiting.len();
        state.waiting.retain(|event| event.object() != Some(object));
        let withdrawn = before - state.waiting.len();
        if withdrawn > 0 {
            state.void_counts.withdraw(&*self.wake, u32::try_from(withdrawn).unwrap_or(u32::MAX));
        }
    }
}

impl fmt::Debug for AsyncEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents")
            .field("waiting", &self.waiting_events())
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}
