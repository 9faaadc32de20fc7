//! Moderation: an armed queue tells of several completions by one event (`ibv_modify_cq`, `struct
//! ibv_moderate_cq`).
//!
//! ```text
//!   arm ──> first completion that is due ──> … ──> the count is full ───> event
//!                      └──────────── the period has passed ─────────────┘
//! ```
//! Only completions count that would have made the event without moderation: all of them after
//! arming for the next one, those of messages with the solicited event bit after arming for
//! solicited ones. A completion in error and the overrun are told at once, since nothing may come
//! after them.
//!
//! The core has no clock: a completion's own stamp begins the period, and the device's timers end
//! it.

use std::collections::HashMap;

use super::{Cq, CqId, NoWake, Wake};
use crate::timers::Timers;
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::time::Time;

/// When an armed queue tells what came (`struct ibv_moderate_cq`). By default, or with both 0, at
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// After so many completions (`cq_count`); 0 leaves it to the period alone.
    pub count: u16,
    /// After so many microseconds since the first of them (`cq_period`); 0 leaves it to the count
    /// alone: the event may then never come.
    pub period_us: u16,
}

impl Moderation {
    fn period_ns(self) -> u64 {
        u64::from(self.period_us) * 1000
    }
}

/// What an armed queue holds back; lives under the queue's lock.
#[derive(Debug)]
pub(super) struct Coalescing {
    moderation: Moderation,
    /// Completions held back.
    count: u32,
    /// Stamp of the first of them.
    started_at: Time,
    /// The earliest entry that the timers hold.
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

    /// A completion is due at `now`. Whether the event is.
    pub(super) fn add(&mut self, now: Time) -> bool {
        if self.count == 0 {
            self.started_at = now;
        }
        self.count = self.count.saturating_add(1);
        self.is_full()
    }

    /// The rule changes. Whether the event is due by it.
    pub(super) fn change(&mut self, moderation: Moderation) -> bool {
        self.moderation = moderation;
        self.count > 0 && self.is_full()
    }

    fn is_full(&self) -> bool {
        let Moderation { count, period_us } = self.moderation;
        if count == 0 { period_us == 0 } else { self.count >= u32::from(count) }
    }

    /// When the event is due at the latest.
    fn deadline(&self) -> Time {
        if self.count == 0 || self.moderation.period_us == 0 {
            return Time::NEVER;
        }
        self.started_at.plus_ns(self.moderation.period_ns())
    }

    /// Whether an event is due by the clock for what is held back.
    pub(super) fn has_deadline(&self) -> bool {
        self.deadline() != Time::NEVER
    }

    /// The entry that the timers need and do not hold yet; the caller inserts it.
    pub(super) fn next_timer(&mut self) -> Option<Time> {
        let deadline = self.deadline();
        if deadline >= self.timer_at {
            return None;
        }
        self.timer_at = deadline;
        Some(deadline)
    }

    /// The timers' entry `entry` came at `now`. Whether the event is due.
    pub(super) fn on_timer(&mut self, entry: Time, now: Time) -> bool {
        if entry != self.timer_at {
            return false; // an entry that an earlier one replaced
        }
        self.timer_at = Time::NEVER;
        self.deadline() <= now
    }

    /// The event went out.
    pub(super) fn reset(&mut self) {
        self.count = 0;
    }
}

/// The moderated queues of a device, and when their periods end. Not on the way of a completion,
/// but for the one that begins a period.
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
    /// None. `wake` is called when the next end became earlier.
    #[must_use]
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self { timers: Timers::new(wake), queues: Mutex::new(HashMap::new()) }
    }

    /// When [`expire`](Self::expire) is next due, [`Time::NEVER`] if it is not.
    #[must_use]
    pub fn next(&self) -> Time {
        self.timers.next()
    }

    /// Has the queues told that have held back long enough.
    pub fn expire(&self, now: Time) {
        while let Some((entry, id)) = self.timers.take_due(now) {
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
