//! Moderation of completion events: one event for several completions (`ibv_modify_cq`, `struct
//! ibv_moderate_cq`).
//!
//! ```text
//!   arm ──> first completion that counts ──> … ──> the count is reached ──> event
//!                      └────────────── the period has passed ────────────┘
//! ```
//!
//! The completions that count are those that would cause an event without moderation. If the queue
//! is armed for the next completion, these are all; if for solicited ones, those of
//! messages with the solicited event bit. A completion in error and an overrun cause an event at
//! once, because no completion may follow them.
//!
//! The core has no clock. The time stamp of a completion starts the period, and the device's timers
//! end it.

use std::collections::HashMap;

use super::{Cq, CqId, NoWake, Wake};
use crate::timers::Timers;
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::time::Time;

/// The time at which an armed queue sends its event (`struct ibv_moderate_cq`). The default, and
/// both 0, mean at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// The number of completions that cause the event (`cq_count`); 0 for no limit.
    pub count: u16,
    /// The time in microseconds from the first completion to the event (`cq_period`); 0 for no
    /// limit. If only `count` is set, the event may never be sent.
    pub period_us: u16,
}

impl Moderation {
    fn period_ns(self) -> u64 {
        u64::from(self.period_us) * 1000
    }
}

/// The completions that an armed queue has not reported yet. Protected by the lock of the queue.
#[derive(Debug)]
pub(super) struct Coalescing {
    moderation: Moderation,
    /// The number of completions not reported.
    count: u32,
    /// The time stamp of the first of them.
    started_at: Time,
    /// The earliest timer of this queue; [`Time::NEVER`] if there is none.
    timer_at: Time,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self {
            moderation: Moderation::default(),
            count: 0,
            started_at: Time::ZERO,
            timer_at: Time::NEVER,
        }
    }
}

impl Coalescing {
    pub(super) const fn moderation(&self) -> Moderation {
        self.moderation
    }

    /// Counts a completion at `now`. Returns whether the event must be sent.
    pub(super) fn add(&mut self, now: Time) -> bool {
        if self.count == 0 {
            self.started_at = now;
        }
        self.count = self.count.saturating_add(1);
        self.is_full()
    }

    /// Changes the limits. Returns whether the event must be sent.
    pub(super) fn change(&mut self, moderation: Moderation) -> bool {
        self.moderation = moderation;
        self.count > 0 && self.is_full()
    }

    fn is_full(&self) -> bool {
        let Moderation { count, period_us } = self.moderation;
        if count == 0 { period_us == 0 } else { self.count >= u32::from(count) }
    }

    /// Returns the latest time of the event; [`Time::NEVER`] if there is none.
    fn deadline(&self) -> Time {
        if self.count == 0 || self.moderation.period_us == 0 {
            return Time::NEVER;
        }
        self.started_at.plus_ns(self.moderation.period_ns())
    }

    /// Returns whether a timer will send the event.
    pub(super) fn has_deadline(&self) -> bool {
        self.deadline() != Time::NEVER
    }

    /// Returns the timer that is needed and was not set yet, for the caller to set.
    pub(super) fn next_timer(&mut self) -> Option<Time> {
        let deadline = self.deadline();
        if deadline >= self.timer_at {
            return None;
        }
        self.timer_at = deadline;
        Some(deadline)
    }

    /// Handles the timer that was set for `entry`, at `now`. Returns whether the event must be
    /// sent.
    pub(super) fn on_timer(&mut self, entry: Time, now: Time) -> bool {
        if entry != self.timer_at {
            return false; // an earlier timer replaced this one
        }
        self.timer_at = Time::NEVER;
        self.deadline() <= now
    }

    /// Handles the sending of the event.
    pub(super) fn reset(&mut self) {
        self.count = 0;
    }
}

/// The moderated queues of a device, and the timers of their periods. Only a completion that starts
/// a period uses this.
#[derive(Debug)]
pub struct ModerationTimers {
    timers: Timers,
    queues: Mutex<HashMap<CqId, std::sync::Weak<Cq>>>,
}

impl Default for ModerationTimers {
    fn default() -> Self {
        Self::new(Arc::new(NoWake))
    }
}

impl ModerationTimers {
    /// Makes an empty set. `wake` is called when the next timer moves earlier.
    #[must_use]
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self { timers: Timers::new(wake), queues: Mutex::new(HashMap::new()) }
    }

    /// Returns the time of the next timer, or [`Time::NEVER`].
    #[must_use]
    pub fn next(&self) -> Time {
        self.timers.next()
    }

    /// Sends the events of queues whose period has ended at `now`, at most `most` of them.
    pub fn expire(&self, now: Time, most: usize) {
        for _ in 0..most {
            let Some((entry, id)) = self.timers.take_due(now) else { return };
            let queue = lock(&self.queues).get(&CqId(id)).and_then(std::sync::Weak::upgrade);
            if let Some(queue) = queue {
                queue.on_timer(entry, now);
            }
        }
    }

    pub(super) fn add(&self, cq: &Arc<Cq>) {
        lock(&self.queues).insert(cq.id(), Arc::downgrade(cq));
    }

    pub(super) fn insert(&self, at: Time, id: CqId) {
        self.timers.insert(at, id.0);
    }

    pub(super) fn remove(&self, id: CqId) {
        lock(&self.queues).remove(&id);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
