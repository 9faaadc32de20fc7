//! Asynchronous events of queue pairs, completion queues, shared receive queues, ports and the
//! device.
//!
//! The queue of events calls [`Wake`] under its lock, like a completion channel
//! ([`wake`](super::wake)). For each object, the queue counts the events that the program took and
//! has not acknowledged. Destroying the object withdraws the events that were not taken, and waits
//! for the acknowledgement of the others (`ibv_ack_async_event`).
//!
//! The queue is bounded:
//!
//! - An event equal to a waiting one is dropped, unless the opposite event came in between. A port
//!   that went down, up and down is down.
//! - Beyond [`AsyncEvents::CAPACITY`] events, a new one replaces its equal and goes to the end. An
//!   event without an equal is dropped and counted.
//!
//! Lock order: any other lock of this crate before this one. No lock is taken under it.
//!
//! Sources: `enum ibv_event_type` of libibverbs (`verbs.h`) for numbers and names; IBTA vol. 1,
//! 11.6.3.

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
    /// The type of an asynchronous event (`enum ibv_event_type`), named as by `ibv_event_type_str`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum AsyncEventType: as_str, number -> u8 {
        /// A completion queue overran.
        CqErr = 0 => "CQ error",
        /// A queue pair entered the error state for a reason that no work completion reports.
        QpFatal = 1 => "local work queue catastrophic error",
        /// A responder received an invalid request, and its queue pair entered the error state.
        QpReqErr = 2 => "invalid request local work queue error",
        /// A responder received a request for memory that may not be accessed, and its queue pair
        /// entered the error state.
        QpAccessErr = 3 => "local access violation work queue error",
        /// A packet arrived on a queue pair in RTR.
        CommEst = 4 => "communication established",
        /// A queue pair in SQD completed all messages that were begun.
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
        /// A shared receive queue failed. Never raised here, because the queue is memory of
        /// this process and cannot fail by itself. If a receive names memory that may not be used,
        /// the queue pair that took it fails, as the specification says for the responder. The
        /// queue stays usable for others.
        SrqErr = 14 => "SRQ catastrophic error",
        /// A shared receive queue holds fewer receives than its limit.
        SrqLimitReached = 15 => "SRQ limit reached",
        /// A queue pair will take no more from its shared receive queue.
        QpLastWqeReached = 16 => "last WQE reached",
        /// The subnet manager asks for a new registration.
        ClientReregister = 17 => "client reregistration",
        /// The port's GID table changed.
        GidChange = 18 => "GID table change",
        /// A work queue failed.
        WqFatal = 19 => "WQ fatal",
    }
}

/// An asynchronous event and its object.
///
/// Each kind of object has its variant, so that an event of a port cannot name a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// An event of a completion queue.
    Cq(CqEventType, CqId),
    /// An event of a queue pair.
    Qp(QpEventType, Qpn),
    /// An event of a shared receive queue.
    Srq(SrqEventType, SrqId),
    /// An event of a port. Ports are counted from 1.
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
    /// The events of a completion queue.
    CqEventType { CqErr }
    /// The events of a queue pair.
    QpEventType {
        QpFatal QpReqErr QpAccessErr CommEst SqDrained PathMig PathMigErr QpLastWqeReached
    }
    /// The events of a shared receive queue.
    SrqEventType { SrqErr SrqLimitReached }
    /// The events of a port.
    PortEventType { PortActive PortErr LidChange PkeyChange SmChange ClientReregister GidChange }
}

impl AsyncEvent {
    /// Returns the type of the event.
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

    /// Returns the object whose destruction waits until this event is acknowledged. Ports and
    /// devices do not wait.
    #[must_use]
    pub const fn object(&self) -> Option<EventObject> {
        match *self {
            Self::Cq(_, cq) => Some(EventObject::Cq(cq)),
            Self::Qp(_, qp) => Some(EventObject::Qp(qp)),
            Self::Srq(_, srq) => Some(EventObject::Srq(srq)),
            Self::Port(..) | Self::DeviceFatal => None,
        }
    }

    /// Returns whether both events are equal or opposite.
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

/// An object that events name and that can be destroyed.
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
    /// The number of events that were taken and not acknowledged, by object. Numbers of 0 are not
    /// stored.
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

/// The asynchronous events of one device, in the order in which they were raised.
pub struct AsyncEvents {
    wake: Box<dyn Wake>,
    capacity: usize,
    state: Mutex<State>,
    acknowledged: Condvar,
}

impl AsyncEvents {
    /// The most events that wait. Further events are dropped and counted in [`lost`](Self::lost).
    pub const CAPACITY: usize = 65_536;

    /// Makes an empty queue. `wake` is called once for each event.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Self {
        Self::with_capacity(wake, Self::CAPACITY)
    }

    fn with_capacity(wake: Box<dyn Wake>, capacity: usize) -> Self {
        Self { wake, capacity, state: Mutex::new(State::default()), acknowledged: Condvar::new() }
    }

    /// Adds an event. This may allocate and compares the event with all waiting ones, so must not
    /// be called on the data path.
    pub fn push(&self, event: AsyncEvent) {
        let mut state = lock(&self.state);
        let mut newest_first = state.waiting.iter().rev();
        if newest_first.find(|other| other.has_same_subject(&event)) == Some(&event) {
            return;
        }
        if state.waiting.len() >= self.capacity {
            // A program that reads all events must end with the current state.
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

    /// Takes the oldest event, if there is one. The program must acknowledge it
    /// ([`ack`](Self::ack)), because destroying the object waits for that.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        let mut state = lock(&self.state);
        let event = state.take()?;
        state.void_counts.withdraw(&*self.wake, 1);
        Some(event)
    }

    /// Takes an event like [`next_event`](Self::next_event), for a reader that has already taken
    /// one count from the waker. Returns `None` if the event of that count was withdrawn; the
    /// reader then takes another count.
    pub fn next_event_for_count(&self) -> Option<AsyncEvent> {
        let mut state = lock(&self.state);
        if state.void_counts.consume() { state.take() } else { None }
    }

    /// Acknowledges one event that [`next_event`](Self::next_event) returned. An acknowledgement
    /// without such an event has no effect.
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

    /// Withdraws the events of `object` that were not taken, and waits until the others are
    /// acknowledged. The caller destroys the object and must ensure that no more events of it are
    /// added.
    pub fn retire(&self, object: EventObject) {
        let mut state = lock(&self.state);
        self.withdraw(&mut state, object);
        while state.unacknowledged.contains_key(&object) {
            state = wait(&self.acknowledged, state);
        }
    }

    /// Withdraws the events of `object` like [`retire`](Self::retire), without waiting for
    /// acknowledgements. It is for objects that are removed without a call of the program.
    pub fn retire_without_wait(&self, object: EventObject) {
        let mut state = lock(&self.state);
        self.withdraw(&mut state, object);
        if state.unacknowledged.remove(&object).is_some() {
            drop(state);
            self.acknowledged.notify_all();
        }
    }

    /// Returns the number of events that were not taken.
    #[must_use]
    pub fn waiting_events(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Returns the number of events that were dropped because the queue was full.
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
