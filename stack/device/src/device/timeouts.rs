//! From the timers to the queue pairs.
//!
//! The timers may hold entries that a queue pair no longer needs. Each entry is checked under the
//! queue pair's lock when it comes up.

use std::mem;

use super::Device;
use crate::qp::Qp;
use urxe_types::sync::lock;
use urxe_types::time::Time;

impl Device {
    /// Does what is due at `now`. What it causes to be sent leaves with the next
    /// [`transmit_pending`](Self::transmit_pending).
    pub fn handle_timeouts(&self, now: Time) {
        self.moderation_timers.expire(now);
        while let Some((at, index)) = self.timers.take_due(now) {
            self.on_timer_entry(now, at, index);
        }
    }

    /// Does what is due of queue pair `index`, for which the entry of the time `at` was taken from
    /// the timers. Several threads may have taken some of the same queue pair, and come here in any
    /// order.
    pub(super) fn on_timer_entry(&self, now: Time, at: Time, index: u32) {
        let Some(slot) = self.qps.at(index) else { return };
        let mut guard = lock(&slot.qp);
        let Some(qp) = guard.as_mut() else { return };
        if qp.timer_at != at {
            // An entry that an earlier one replaced, which another thread has taken and is about to
            // look at.
            if qp.timer_then == at {
                qp.timer_then = Time::NEVER;
            }
            return;
        }
        qp.timer_at = mem::replace(&mut qp.timer_then, Time::NEVER);
        // Most entries are of deadlines that have moved since.
        let is_due = qp.deadline() <= now;
        if is_due {
            qp.on_timer(&self.context(now, qp.path));
        }
        self.settle_timer(index, qp, qp.deadline());
        // A blocked queue pair is asked when its turn comes, unless something is to be sent again.
        if qp.wants_to_send(now) && (is_due || !qp.is_blocked) {
            self.enqueue(index, slot, qp);
        } else if is_due {
            // Giving up opened the window for the queue pairs that it had stopped.
            self.mark_path_ready(qp.path);
        }
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) is next due, if ever. It may turn out that
    /// nothing is.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        Some(self.timers.next().min(self.moderation_timers.next())).filter(|at| *at != Time::NEVER)
    }

    /// Sees to it that the timers hold an entry no later than the queue pair's deadline.
    pub(super) fn settle_timer(&self, index: u32, qp: &mut Qp, deadline: Time) {
        if deadline < qp.timer_at {
            // The other stays for when this one is over: what is missing for a moment comes up
            // again and again beside a timeout that moves.
            qp.timer_then = mem::replace(&mut qp.timer_at, deadline);
            self.timers.insert(deadline, index);
        }
    }
}
