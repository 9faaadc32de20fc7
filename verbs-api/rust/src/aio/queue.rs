//! The state of an awaitable queue pair: slots of operations, received messages, and the dispatch
//! of completions.
//!
//! ```text
//!   operation: slot Free ──post──> Posted ──completion──> Done ──taken by its future──> Free
//!                                    └─ future dropped ─> Abandoned ──completion──> Free
//!   message:   receive posted ──completion──> received ──recv──> Received ──drop──> posted
//! ```
//!
//! The `wr_id` of a request is the index and the generation of its slot, so each completion finds
//! its operation without a search. The slots never move and never grow.
//!
//! # No lost wake-up
//! A future stores its waker under the lock of the state. A dispatch takes completions from the
//! completion queue under the same lock. So a completion is either seen by the future that looks,
//! or dispatched to the stored waker. No single future is responsible for the
//! dispatch:
//!
//! 1. Each future that looks dispatches what is there.
//! 2. Before a future sleeps without polling, the completion queue is armed. Its event runs
//!    [`Inner::on_event`] on the thread that received the completion. No future needs to be polled
//!    for that, so a future that is dropped, or kept and never polled again, delays no other.
//!
//! Lock order: state, completion queue, channel. No waker, region or verb is called or dropped
//! under the lock of the state.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use urxe_stack::allocate::{self, OutOfMemory};
#[cfg(feature = "cm")]
use urxe_stack::cq::WcStatus;
use urxe_stack::cq::{ArmKind, Completion, CqError, WcError, WcOpcode};

use super::busy_polling::BusyPolling;
use super::error::OperationError;
use super::turns::{Ticket, Turns};
#[cfg(feature = "cm")]
use crate::cm::Connection;
use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::memory::MemoryRegion;
use crate::qp::{Gather, QueuePair, RecvRequest};
use crate::waker_list::lock;

/// Completions that one dispatch takes under the lock.
const BATCH: usize = 16;
/// Marks the `wr_id` of receives.
const RECEIVE: u64 = 1 << 63;
/// The bytes of the former value of an atomic operation.
pub(super) const VALUE_LEN: usize = 8;

/// The queue pair, alone or as part of a connection.
#[derive(Debug)]
pub(super) enum Transport {
    Own(QueuePair),
    #[cfg(feature = "cm")]
    Connected(Arc<Connection>),
}

/// The memory of posted receives.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Absent if the receives have no bytes.
    pub region: Option<MemoryRegion>,
    pub count: u32,
    pub len: usize,
}

/// What all handles and futures of a queue pair share.
#[derive(Debug)]
pub(super) struct Inner {
    // The queue pair is destroyed first, before its memory is deregistered.
    pub transport: Transport,
    pub cq: CompletionQueue,
    pub state: Mutex<State>,
    /// The former values of atomic operations, one a slot.
    pub values: MemoryRegion,
    pub buffers: Buffers,
    pub busy_poll_ns: u64,
}

/// Identifies one use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    phase: Phase,
    /// The memory of the operation, kept until it completes.
    region: Option<Arc<MemoryRegion>>,
}

#[derive(Debug)]
enum Phase {
    Free,
    Posted(Option<Waker>),
    Abandoned,
    Done(Completion),
}

/// The slots and messages. See the [module](self).
#[derive(Debug)]
pub(super) struct State {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// The free slots, and the operations that wait for one.
    turns: Turns,
    received: VecDeque<(u32, Completion)>,
    /// The messages in `received`, and the tasks that wait for one.
    receivers: Turns,
    /// Why no further message arrives.
    receive_error: Option<WcError>,
    /// Why no further completion arrives.
    queue_error: Option<CqError>,
    /// Whether the next completion causes an event, or an event was not handled.
    is_armed: bool,
    pub(super) polling: BusyPolling,
    /// The operation that started to sleep last.
    last_sleeper: Option<Key>,
}

/// What a dispatch releases after it released the lock: wakers to call, and memory to drop.
#[derive(Default)]
struct Released {
    wakers: [Option<Waker>; BATCH],
    regions: [Option<Arc<MemoryRegion>>; BATCH],
    /// Wakers of a queue pair that failed.
    others: Vec<Waker>,
    /// Wakers that are not called.
    unused: Vec<Waker>,
}

impl Slot {
    /// Returns whether the completion of the operation is expected.
    fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Posted(_) | Phase::Abandoned)
    }
}

impl Key {
    pub fn wr_id(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

impl State {
    /// Returns the state of a queue pair with this number of sends and receives.
    ///
    /// # Errors
    /// Fails if no memory is available.
    pub fn new(sends: u32, receives: u32) -> Result<Self, OutOfMemory> {
        let free_slot = |_| Slot { generation: 0, phase: Phase::Free, region: None };
        let mut received = VecDeque::new();
        let count = receives as usize;
        received.try_reserve_exact(count).map_err(|_| OutOfMemory::of::<Completion>(count))?;
        Ok(Self {
            slots: allocate::collected((0..sends).map(free_slot))?.into_boxed_slice(),
            free: allocate::collected((0..sends).rev())?,
            turns: Turns::new(sends as usize),
            received,
            receivers: Turns::new(0),
            receive_error: None,
            queue_error: None,
            is_armed: false,
            polling: BusyPolling::default(),
            last_sleeper: None,
        })
    }

    /// Fills a free slot, for which the caller has a permit. Fails if no completion can free one.
    fn fill(&mut self, region: &mut Option<Arc<MemoryRegion>>) -> Result<Key, OperationError> {
        let failed = OperationError::Cq(self.queue_error.unwrap_or(CqError::Destroyed));
        let index = self.free.pop().ok_or(failed)?;
        let slot = self.slots.get_mut(index as usize).ok_or(failed)?;
        slot.phase = Phase::Posted(None);
        slot.region = region.take();
        self.polling.on_request();
        Ok(Key { index, generation: slot.generation })
    }

    /// Fills a slot if one is free for a caller that did not wait.
    pub(super) fn fill_free(
        &mut self,
        region: &mut Option<Arc<MemoryRegion>>,
    ) -> Option<Result<Key, OperationError>> {
        self.turns.try_take().then(|| self.fill(region))
    }

    /// Takes the completion of an operation without value, and frees its slot. Adds the waker of
    /// the operation that may use the slot now to `others`.
    pub(super) fn take_done(
        &mut self,
        key: Key,
        others: &mut Vec<Waker>,
    ) -> Option<Result<Completion, OperationError>> {
        let queue_error = self.queue_error.map(OperationError::Cq);
        match self.slot(key)?.phase {
            Phase::Done(completion) => {
                others.extend(self.vacate(key));
                Some(completion.ok().map_err(OperationError::Failed))
            }
            _ => queue_error.map(Err),
        }
    }

    /// Stores the waker of a posted operation. Returns the one that is not stored any more.
    pub(super) fn store_waker(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        self.last_sleeper = Some(key);
        match &mut self.slot(key)?.phase {
            Phase::Posted(stored) => stored.replace(waker),
            _ => Some(waker),
        }
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.index as usize)?;
        (slot.generation == key.generation).then_some(slot)
    }

    /// Frees a slot. Returns the waker of the operation that may use it now.
    fn vacate(&mut self, key: Key) -> Option<Waker> {
        let slot = self.slot(key)?;
        slot.phase = Phase::Free;
        // The highest bit of `wr_id` belongs to receives.
        slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
        self.free.push(key.index);
        self.turns.add()
    }

    /// Gives the completion to its operation or to the receivers.
    fn complete(&mut self, completion: Completion, nr: usize, released: &mut Released) {
        self.polling.on_completion();
        let wr_id = completion.wr_id;
        if wr_id & RECEIVE != 0 {
            match completion.ok() {
                Ok(completion) => {
                    self.received.push_back((wr_id as u32, completion));
                    released.wakers[nr] = self.receivers.add();
                }
                Err(error) => {
                    self.receive_error.get_or_insert(error);
                    released.others.extend(std::iter::from_fn(|| self.receivers.grant()));
                }
            }
            return;
        }
        let key = Key { index: wr_id as u32, generation: (wr_id >> 32) as u32 };
        let Some(slot) = self.slot(key) else {
            debug_assert!(false, "a slot has one completion for each use");
            return;
        };
        released.regions[nr] = slot.region.take();
        if matches!(slot.phase, Phase::Abandoned) {
            released.wakers[nr] = self.vacate(key);
        } else if let Phase::Posted(waker) =
            std::mem::replace(&mut slot.phase, Phase::Done(completion))
        {
            released.wakers[nr] = waker;
        }
    }

    /// Frees the slot of an operation whose future takes the completion now.
    fn finish(&mut self, key: Key, nr: usize, released: &mut Released) {
        self.polling.on_completion();
        if let Some(slot) = self.slot(key) {
            released.regions[nr] = slot.region.take();
            if let Phase::Posted(Some(waker)) = std::mem::replace(&mut slot.phase, Phase::Free) {
                released.unused.push(waker);
            }
        }
        released.wakers[nr] = self.vacate(key);
    }

    /// Ends all operations, because no further completion arrives.
    fn fail(&mut self, error: CqError, released: &mut Released) {
        if self.queue_error.replace(error).is_some() {
            return;
        }
        for slot in &mut self.slots {
            if let Phase::Posted(waker) = &mut slot.phase {
                released.others.extend(waker.take());
            }
        }
        released.others.extend(std::iter::from_fn(|| self.turns.grant()));
        released.others.extend(std::iter::from_fn(|| self.receivers.grant()));
    }

    fn is_receive_ended(&self) -> bool {
        self.receive_error.is_some() || self.queue_error.is_some()
    }

    /// Returns whether a completion is expected, or a task waits.
    fn is_busy(&self) -> bool {
        let has_used_slots = self.free.len() < self.slots.len();
        has_used_slots && self.slots.iter().any(Slot::is_pending) || self.receivers.has_waiters()
    }

    /// Returns a waker of a future that could poll for the others.
    fn sleeper(&mut self) -> Option<Waker> {
        let waker = self.receivers.next_waker().cloned();
        let last = self.last_sleeper.take();
        waker.or_else(|| match &self.slot(last?)?.phase {
            Phase::Posted(waker) => waker.clone(),
            _ => None,
        })
    }
}

impl Released {
    /// Calls the wakers and drops the memory. If a waker panics, the others are still called.
    fn finish(mut self) {
        let mut panic = None;
        for waker in self.wakers.iter_mut().filter_map(Option::take).chain(self.others.drain(..)) {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panic = Some(payload);
            }
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Inner {
    pub fn qp(&self) -> &QueuePair {
        match &self.transport {
            Transport::Own(qp) => qp,
            #[cfg(feature = "cm")]
            Transport::Connected(connection) => connection.qp(),
        }
    }

    pub fn device(&self) -> &Device {
        self.cq.device()
    }

    /// Names the end of the connection as the reason of a flushed request.
    pub fn explained(&self, error: OperationError) -> OperationError {
        match (&self.transport, error) {
            #[cfg(feature = "cm")]
            (Transport::Connected(connection), OperationError::Failed(failed))
                if failed.status == WcStatus::WrFlushErr && connection.is_disconnected() =>
            {
                OperationError::Disconnected { peer: connection.peer_addr() }
            }
            _ => error,
        }
    }

    /// Takes all completions and gives them to their operations.
    pub fn dispatch(&self) {
        let _none = self.take_in_order(std::iter::empty());
    }

    /// Takes all completions, and frees the slots of the operations `keys` whose completions come
    /// in this order. Gives the other completions to their operations. Returns the number of freed
    /// slots, with the first error.
    pub fn take_in_order(
        &self,
        keys: impl Iterator<Item = Key>,
    ) -> (usize, Option<OperationError>) {
        let mut keys = keys.peekable();
        let (mut freed, mut failed) = (0, None);
        while !self.cq.core().is_quiet() {
            let mut taken = [Completion::default(); BATCH];
            let mut released = Released::default();
            let mut state = lock(&self.state);
            let polled = self.cq.core().poll(&mut taken);
            let count = polled.unwrap_or(0);
            for (nr, completion) in taken.into_iter().take(count).enumerate() {
                match keys.next_if(|key| key.wr_id() == completion.wr_id) {
                    Some(key) => {
                        state.finish(key, nr, &mut released);
                        freed += 1;
                        failed = failed.or(completion.ok().err().map(OperationError::Failed));
                    }
                    None => state.complete(completion, nr, &mut released),
                }
            }
            if let Err(error) = polled {
                state.fail(error, &mut released);
            }
            drop(state);
            released.finish();
            if count < BATCH {
                break;
            }
        }
        (freed, failed)
    }

    /// Arms the completion queue, unless it is armed. Afterwards the caller must dispatch once.
    pub fn arm(&self) {
        let mut state = lock(&self.state);
        if !state.is_armed {
            state.is_armed = true;
            self.cq.core().arm(ArmKind::Next);
        }
    }

    /// Handles an event of the completion queue, on any thread that holds no lock.
    pub fn on_event(&self) {
        self.cq.ack_private_events();
        lock(&self.state).is_armed = false;
        self.dispatch();
        if lock(&self.state).is_busy() {
            self.arm();
            self.dispatch();
        }
    }

    /// Takes a free slot. Otherwise queues the caller, or keeps it in the queue at `ticket`.
    pub fn acquire(
        &self,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
        region: &mut Option<Arc<MemoryRegion>>,
    ) -> Option<Result<Key, OperationError>> {
        if ticket.is_none()
            && let Some(filled) = lock(&self.state).fill_free(region)
        {
            return Some(filled);
        }
        // A waker that is not stored is dropped after the lock is released.
        let mut owned = waker.clone();
        let mut state = lock(&self.state);
        let is_served = match *ticket {
            Some(waiting) => state.turns.poll(waiting, &mut owned),
            None => state.turns.try_take(),
        };
        if is_served {
            *ticket = None;
            return Some(state.fill(region));
        }
        if ticket.is_none() {
            *ticket = Some(state.turns.wait(owned.clone()));
        }
        drop(state);
        None
    }

    /// Ends the wait for a slot.
    pub fn leave(&self, ticket: Ticket) {
        let (unused, next) = lock(&self.state).turns.leave(ticket);
        drop(unused);
        wake(next);
    }

    /// Frees a slot whose request was not posted.
    pub fn release(&self, key: Key) {
        let mut state = lock(&self.state);
        let region = state.slot(key).and_then(|slot| slot.region.take());
        let next = state.vacate(key);
        drop(state);
        drop(region);
        wake(next);
    }

    /// Takes the completion of an operation as [`take`](Self::take) does. It is usually the first
    /// in the completion queue, and then needs no dispatch.
    pub fn take_first(&self, key: Key) -> Option<Result<(Completion, u64), OperationError>> {
        if self.cq.core().is_quiet() {
            return self.take(key, None);
        }
        let mut first = [Completion::default()];
        let mut state = lock(&self.state);
        let count = self.cq.core().poll(&mut first).unwrap_or(0);
        if count == 0 || first[0].wr_id != key.wr_id() {
            let mut released = Released::default();
            if count > 0 {
                state.complete(first[0], 0, &mut released);
            }
            drop(state);
            released.finish();
            self.dispatch();
            return self.take(key, None);
        }
        state.polling.on_completion();
        let unused = state
            .slot(key)
            .map(|slot| (slot.region.take(), std::mem::replace(&mut slot.phase, Phase::Free)));
        let value = self.value(key, &first[0]);
        let next = state.vacate(key);
        drop(state);
        drop(unused);
        wake(next);
        Some(first[0].ok().map(|completion| (completion, value)).map_err(OperationError::Failed))
    }

    /// Returns the former value of an atomic operation that completed.
    fn value(&self, key: Key, completion: &Completion) -> u64 {
        match completion.opcode {
            WcOpcode::FetchAdd | WcOpcode::CompSwap => {
                self.values.load_u64(key.index as usize * VALUE_LEN).unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// Takes the completion of an operation, with the former value of an atomic operation, and
    /// frees its slot. Otherwise stores the waker.
    pub fn take(
        &self,
        key: Key,
        waker: Option<&Waker>,
    ) -> Option<Result<(Completion, u64), OperationError>> {
        let waker = waker.cloned();
        let mut state = lock(&self.state);
        let queue_error = state.queue_error;
        let slot = state.slot(key)?;
        let before = match &mut slot.phase {
            Phase::Done(completion) => {
                let completion = *completion;
                let value = self.value(key, &completion);
                let next = state.vacate(key);
                drop(state);
                wake(next);
                let checked = completion.ok().map(|completion| (completion, value));
                return Some(checked.map_err(OperationError::Failed));
            }
            _ if queue_error.is_some() => {
                return queue_error.map(|error| Err(OperationError::Cq(error)));
            }
            Phase::Posted(stored) if waker.is_some() => std::mem::replace(stored, waker),
            _ => return None,
        };
        state.last_sleeper = Some(key);
        drop(state);
        drop(before);
        None
    }

    /// Ends the interest of a future in its operation. The slot stays in use until the operation
    /// completes.
    pub fn abandon(&self, key: Key) {
        let mut state = lock(&self.state);
        let Some(slot) = state.slot(key) else { return };
        match std::mem::replace(&mut slot.phase, Phase::Abandoned) {
            Phase::Done(_) => {
                let next = state.vacate(key);
                drop(state);
                wake(next);
            }
            before => {
                drop(state);
                drop(before);
                // The completion frees the slot when it arrives, although no future looks.
                self.arm();
                self.dispatch();
            }
        }
    }

    /// Takes the oldest message. Otherwise queues the caller, or keeps it in the queue at `ticket`.
    pub fn take_message(
        &self,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Option<Result<(u32, Completion), OperationError>> {
        // A waker that is not stored is dropped after the lock is released.
        let mut owned = waker.clone();
        let mut state = lock(&self.state);
        if let Some(waiting) = *ticket {
            if !state.receivers.poll(waiting, &mut owned) {
                drop(state);
                return None;
            }
            *ticket = None;
        } else if !state.receivers.try_take() && !state.is_receive_ended() {
            *ticket = Some(state.receivers.wait(owned.clone()));
            drop(state);
            return None;
        }
        let failed = OperationError::Cq(state.queue_error.unwrap_or(CqError::Destroyed));
        let failed = state.receive_error.map_or(failed, OperationError::Failed);
        Some(state.received.pop_front().ok_or(failed))
    }

    /// Ends the wait for a message.
    pub fn leave_receivers(&self, ticket: Ticket) {
        let (unused, next) = lock(&self.state).receivers.leave(ticket);
        drop(unused);
        wake(next);
    }

    /// Wakes another future, which may poll for the others. Returns whether there is one.
    pub fn wake_sleeper(&self) -> bool {
        let sleeper = lock(&self.state).sleeper();
        let is_there = sleeper.is_some();
        wake(sleeper);
        is_there
    }

    /// Returns whether a future may wait for a completion.
    pub fn is_busy(&self) -> bool {
        lock(&self.state).is_busy()
    }

    /// Posts the receive of a buffer. A queue pair that cannot receive any more refuses it.
    pub fn post_receive(&self, index: u32) {
        if let Err(error) = self.buffers.post(self.qp(), index) {
            tracing::debug!(%error, "a receive buffer is not posted again");
        }
    }
}

impl Buffers {
    /// Posts the receive of one buffer.
    ///
    /// # Errors
    /// Fails as [`QueuePair::post_recv`] does.
    pub fn post(&self, qp: &QueuePair, index: u32) -> Result<(), crate::PostError> {
        let start = self.start(index);
        let slice = self.region.as_ref().and_then(|r| r.slice(start..start + self.len).ok());
        let into = slice.map_or(Gather::EMPTY, Gather::from);
        qp.post_recv(&RecvRequest::new(into).wr_id(RECEIVE | u64::from(index)))
    }

    /// Posts the receives of all buffers.
    ///
    /// # Errors
    /// Fails as [`QueuePair::post_recv`] does.
    pub fn post_all(&self, qp: &QueuePair) -> Result<(), crate::PostError> {
        (0..self.count).try_for_each(|index| self.post(qp, index))
    }

    /// Returns the offset of a buffer in the region.
    pub fn start(&self, index: u32) -> usize {
        index as usize * self.len
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
