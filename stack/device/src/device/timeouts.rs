//! Expired timers of queue pairs.
//!
//! The timers may hold entries that a queue pair no longer needs. Each expired entry is checked
//! under the queue pair's lock.

use std::mem;

use super::Device;
use crate::qp::Qp;
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::lock;
use urxe_types::time::Time;

/// The most deadlines of a kind that a call handles.
const MAX_TIMEOUTS: usize = 256;

impl Device {
    /// Handles deadlines up to `now`, at most 256 of each kind. Further ones stay due, so that
    /// [`next_deadline`](Self::next_deadline) is in the past. Packets that must be sent leave with
    /// the next [`transmit_pending`](Self::transmit_pending).
    pub fn handle_timeouts(&self, now: Time) {
        self.moderation_timers.expire(now, MAX_TIMEOUTS);
        for _ in 0..MAX_TIMEOUTS {
            let Some((at, index)) = self.timers.take_due(now) else { return };
            self.on_timer_entry(now, at, index);
        }
    }

    /// Handles the entry of queue pair `index` for the time `at`, which the caller took from the
    /// timers. Several threads may have taken entries of one queue pair and call this function in
    /// any order.
    pub(super) fn on_timer_entry(&self, now: Time, at: Time, index: u32) {
        let Some(slot) = self.qps.at(index) else { return };
        let mut guard = lock(&slot.qp);
        let Some(qp) = guard.as_mut() else { return };
        if qp.timer_at != at {
            // An earlier entry replaced this one. Another thread has taken the earlier entry and is
            // about to handle it.
            if qp.later_timer_at == at {
                qp.later_timer_at = Time::NEVER;
            }
            return;
        }
        qp.timer_at = mem::replace(&mut qp.later_timer_at, Time::NEVER);
        // The deadline of most entries has moved since.
        let is_due = qp.deadline() <= now;
        if is_due {
            qp.on_timer(&self.context(now, qp.path));
        }
        self.settle_timer(index, qp, qp.deadline());
        // A blocked queue pair gets its turn from an admission queue, unless packets must be sent
        // again.
        if qp.wants_to_send(now) && (is_due || !qp.is_blocked) {
            self.enqueue(index, slot, qp);
        } else if is_due {
            // A queue pair that gave up has returned its credit to others.
            self.mark_path_ready(qp.path);
        }
    }

    /// Returns the time at which [`handle_timeouts`](Self::handle_timeouts) and
    /// [`transmit_pending`](Self::transmit_pending) must be called, if any. The deadline itself may
    /// be later. [`Time::ZERO`] if the last call left packets over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.has_leftover.load(Ordering::Acquire) {
            return Some(Time::ZERO);
        }
        Some(self.timers.next().min(self.moderation_timers.next())).filter(|at| *at != Time::NEVER)
    }

    /// Ensures that the timers hold an entry no later than the queue pair's deadline.
    pub(super) fn settle_timer(&self, index: u32, qp: &mut Qp, deadline: Time) {
        if deadline < qp.timer_at {
            // The later entry stays for the time after this one: while a timeout moves on, a short
            // deadline for a missing packet comes up beside it again and again.
            qp.later_timer_at = mem::replace(&mut qp.timer_at, deadline);
            self.timers.insert(deadline, index);
        }
    }
}
