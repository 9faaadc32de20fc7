//! Completion channels, which deliver the events of completion queues to a sleeping program.
//!
//! For each of its completion queues, a channel counts the events that the program has not taken,
//! and the events taken and has not acknowledged. A list holds the queues whose events wait,
//! each once. So the list needs no more room than there are queues, and sending an event allocates
//! nothing.
//!
//! The descriptor of `struct ibv_comp_channel` is built on [`Wake`]. The channel calls [`Wake`]
//! under its lock, so the descriptor is readable exactly while an event waits
//! ([`wake`](super::wake)).
//!
//! Lock order: completion queue before channel. No lock is taken under that of the channel.
//!
//! Sources: `ibv_create_comp_channel`, `ibv_get_cq_event`, `ibv_ack_cq_events`, `ibv_destroy_cq` of
//! libibverbs; IBTA vol. 1, 11.4.2.2.

use std::collections::VecDeque;
use std::fmt;

use super::wake::VoidCounts;
use super::{CqId, Wake};
use urxe_types::sync::{Condvar, Mutex, lock, wait};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// An event of a completion queue, as `ibv_get_cq_event` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqEvent {
    /// The completion queue.
    pub cq: CqId,
    /// The `cq_context` of the completion queue.
    pub context: u64,
}

/// The slot of a completion queue in its channel. The generation distinguishes the queues that use
/// a slot one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelSlot {
    index: u32,
    generation: u32,
}

struct Attached {
    event: CqEvent,
    generation: u32,
    in_use: bool,
    /// The number of events that the program has not taken. The queue is in the list of ready
    /// queues exactly if this is not 0.
    waiting: u32,
    /// The number of events that the program took and has not acknowledged.
    unacknowledged: u64,
}

#[derive(Default)]
struct State {
    slots: Vec<Attached>,
    vacant: Vec<u32>,
    ready: VecDeque<u32>,
    void_counts: VoidCounts,
}

impl State {
    fn slot(&mut self, slot: ChannelSlot) -> Option<&mut Attached> {
        self.slots
            .get_mut(slot.index as usize)
            .filter(|attached| attached.in_use && attached.generation == slot.generation)
    }

    fn take(&mut self) -> Option<CqEvent> {
        let index = self.ready.pop_front()?;
        let attached = &mut self.slots[index as usize];
        debug_assert!(
            attached.in_use && attached.waiting > 0,
            "only queues with events stand in line"
        );
        attached.waiting -= 1;
        attached.unacknowledged += 1;
        if attached.waiting > 0 {
            self.ready.push_back(index);
        }
        Some(attached.event)
    }
}

/// The destination of the events of some completion queues (`struct ibv_comp_channel`).
pub struct CompletionChannel {
    wake: Box<dyn Wake>,
    state: Mutex<State>,
    acknowledged: Condvar,
}

impl CompletionChannel {
    /// Makes a channel without completion queues. `wake` is called once for each event.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Self {
        Self { wake, state: Mutex::new(State::default()), acknowledged: Condvar::new() }
    }

    /// Takes the event that has waited longest, if there is one. The queues take turns. The program
    /// must acknowledge each event ([`Cq::ack_events`](super::Cq::ack_events)), because destroying
    /// the queue waits for that.
    pub fn next_event(&self) -> Option<CqEvent> {
        let mut state = lock(&self.state);
        let event = state.take()?;
        state.void_counts.withdraw(&*self.wake, 1);
        Some(event)
    }

    /// Takes an event like [`next_event`](Self::next_event), for a reader that has already taken
    /// one count from the waker. Returns `None` if the event of that count was withdrawn; the
    /// reader then takes another count.
    pub fn next_event_for_count(&self) -> Option<CqEvent> {
        let mut state = lock(&self.state);
        if state.void_counts.consume() { state.take() } else { None }
    }

    /// Returns the number of completion queues that use this channel. A channel in use cannot be
    /// destroyed (EBUSY).
    #[must_use]
    pub fn cq_count(&self) -> usize {
        let state = lock(&self.state);
        state.slots.len() - state.vacant.len()
    }

    /// Returns whether there is an event that was not taken.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !lock(&self.state).ready.is_empty()
    }

    /// Returns whether there is an event of one queue that was not taken.
    pub(super) fn has_events_of(&self, slot: ChannelSlot) -> bool {
        lock(&self.state).slot(slot).is_some_and(|attached| attached.waiting > 0)
    }

    /// Returns the number of events that were not taken.
    #[must_use]
    pub fn waiting_events(&self) -> u64 {
        lock(&self.state).slots.iter().map(|attached| u64::from(attached.waiting)).sum()
    }

    /// Adds the completion queue `event.cq`, and returns its slot.
    pub(super) fn attach(&self, event: CqEvent) -> ChannelSlot {
        let mut state = lock(&self.state);
        if let Some(index) = state.vacant.pop() {
            let attached = &mut state.slots[index as usize];
            attached.event = event;
            attached.in_use = true;
            return ChannelSlot { index, generation: attached.generation };
        }
        let index = u32::try_from(state.slots.len())
            .expect("a device has fewer than 2^32 completion queues");
        state.slots.push(Attached {
            event,
            generation: 0,
            in_use: true,
            waiting: 0,
            unacknowledged: 0,
        });
        let (slots, queued) = (state.slots.len(), state.ready.len());
        state.ready.reserve(slots - queued);
        ChannelSlot { index, generation: 0 }
    }

    /// Sends one event. Does nothing if the queue was removed in the meantime.
    pub(super) fn notify(&self, slot: ChannelSlot) {
        let mut state = lock(&self.state);
        let Some(attached) = state.slot(slot) else { return };
        let Some(waiting) = attached.waiting.checked_add(1) else { return };
        attached.waiting = waiting;
        if waiting == 1 {
            state.ready.push_back(slot.index);
        }
        // Called under the lock, so that no thread can withdraw the event before its wake-up.
        self.wake.wake();
    }

    /// Acknowledges `count` events of a queue. A larger number than were taken counts as all of
    /// them.
    pub(super) fn acknowledge(&self, slot: ChannelSlot, count: u32) {
        let mut state = lock(&self.state);
        let Some(attached) = state.slot(slot) else { return };
        attached.unacknowledged = attached.unacknowledged.saturating_sub(u64::from(count));
        if attached.unacknowledged == 0 {
            drop(state);
            self.acknowledged.notify_all();
        }
    }

    /// Removes a queue and withdraws the events that were not taken. `acknowledgements` says
    /// whether to wait until the others are acknowledged.
    pub(super) fn detach(&self, slot: ChannelSlot, acknowledgements: Acknowledgements) {
        let mut state = lock(&self.state);
        loop {
            let Some(attached) = state.slot(slot) else { return };
            let withdrawn = std::mem::take(&mut attached.waiting);
            if withdrawn > 0 {
                state.ready.retain(|&index| index != slot.index);
                state.void_counts.withdraw(&*self.wake, withdrawn);
                continue;
            }
            if attached.unacknowledged > 0 && acknowledgements == Acknowledgements::Await {
                state = wait(&self.acknowledged, state);
                continue;
            }
            attached.unacknowledged = 0;
            attached.in_use = false;
            attached.generation = attached.generation.wrapping_add(1);
            state.vacant.push(slot.index);
            return;
        }
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("cq_count", &self.cq_count())
            .field("waiting_events", &self.waiting_events())
            .finish_non_exhaustive()
    }
}

/// The handling of events that were taken and not acknowledged when a queue is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledgements {
    /// Wait until they are acknowledged.
    Await,
    /// Do not wait.
    Ignore,
}
