//! Completion channels: how a completion queue tells a sleeping program that something completed.
//!
//! A channel keeps, for each of its completion queues, how many events wait for the program, how
//! many the program took and has not acknowledged, and a line of the queues whose events wait. A
//! queue stands in that line at most once, so the line needs no more room than there are queues and
//! sending an event allocates nothing, however many events one queue has.
//!
//! The descriptor of `struct ibv_comp_channel` is built on [`Wake`], which is called under the
//! channel's lock, so that the descriptor is readable exactly while an event waits
//! ([`wake`](super::wake)). Semantics: `ibv_create_comp_channel`, `ibv_get_cq_event`,
//! `ibv_ack_cq_events`, `ibv_destroy_cq` of libibverbs; IBTA vol. 1, 11.4.2.2.
//!
//! Lock order: completion queue before channel. No lock is taken under the channel's.

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
    /// The queue.
    pub cq: CqId,
    /// The queue's `cq_context`.
    pub context: u64,
}

/// A completion queue's place in its channel. The generation tells the queue from the next one in
/// that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelSlot {
    index: u32,
    generation: u32,
}

struct Attached {
    event: CqEvent,
    generation: u32,
    in_use: bool,
    /// Events sent and not taken; the queue stands in the line exactly if this is not 0.
    waiting: u32,
    /// Events taken and not acknowledged.
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

/// Where the events of a set of completion queues arrive (`struct ibv_comp_channel`).
pub struct CompletionChannel {
    wake: Box<dyn Wake>,
    state: Mutex<State>,
    acknowledged: Condvar,
}

impl CompletionChannel {
    /// A channel without completion queues. `wake` is called once for each event.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Self {
        Self { wake, state: Mutex::new(State::default()), acknowledged: Condvar::new() }
    }

    /// Takes the event that has waited longest, if there is one. Queues take turns. Each event
    /// taken must be acknowledged ([`Cq::ack_events`](super::Cq::ack_events)): destroying its queue
    /// waits for that.
    pub fn next_event(&self) -> Option<CqEvent> {
        let mut state = lock(&self.state);
        let event = state.take()?;
        state.void_counts.withdraw(&*self.wake, 1);
        Some(event)
    }

    /// Like [`next_event`](Self::next_event), for a reader that took one count of the waker for it.
    /// `None`: the event was withdrawn in between, and the reader takes another count.
    pub fn next_event_for_count(&self) -> Option<CqEvent> {
        let mut state = lock(&self.state);
        if state.void_counts.consume() { state.take() } else { None }
    }

    /// Number of completion queues that use this channel. A channel in use is not destroyed
    /// (EBUSY).
    #[must_use]
    pub fn cq_count(&self) -> usize {
        let state = lock(&self.state);
        state.slots.len() - state.vacant.len()
    }

    /// Whether there is an event that nobody took yet.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !lock(&self.state).ready.is_empty()
    }

    /// Number of events that nobody took yet.
    #[must_use]
    pub fn waiting_events(&self) -> u64 {
        lock(&self.state).slots.iter().map(|attached| u64::from(attached.waiting)).sum()
    }

    /// Gives the completion queue `event.cq` a place.
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

    /// Sends one event. Nothing happens if the queue has left in the meantime.
    pub(super) fn notify(&self, slot: ChannelSlot) {
        let mut state = lock(&self.state);
        let Some(attached) = state.slot(slot) else { return };
        let Some(waiting) = attached.waiting.checked_add(1) else { return };
        attached.waiting = waiting;
        if waiting == 1 {
            state.ready.push_back(slot.index);
        }
        // Under the lock, so that nobody can withdraw the event before its wake-up.
        self.wake.wake();
    }

    /// Acknowledges `count` events of a queue. More than were taken count as all of them.
    pub(super) fn acknowledge(&self, slot: ChannelSlot, count: u32) {
        let mut state = lock(&self.state);
        let Some(attached) = state.slot(slot) else { return };
        attached.unacknowledged = attached.unacknowledged.saturating_sub(u64::from(count));
        if attached.unacknowledged == 0 {
            drop(state);
            self.acknowledged.notify_all();
        }
    }

    /// Takes a queue's place away: withdraws the events that nobody took and, if `wait`, waits
    /// until the others are acknowledged.
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

/// What leaving a channel does about events that were taken and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledgements {
    /// Wait for them.
    Await,
    /// Forget them.
    Ignore,
}
