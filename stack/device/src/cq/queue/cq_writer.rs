//! Adding completions to a locked completion queue.

use super::{ArmKind, Cq, CqError, Ring};
use crate::cq::{AsyncEvent, Completion, CqEventType};
use urxe_types::sync::MutexGuard;
use urxe_types::sync::atomic::Ordering;
use urxe_types::time::Time;

/// A locked completion queue. Dropping it releases the lock, and then sends the events that are
/// due.
pub struct CqWriter<'a> {
    pub(super) cq: &'a Cq,
    /// `None` only during the drop.
    pub(super) ring: Option<MutexGuard<'a, Ring>>,
    pub(super) is_batch_lock: bool,
    pub(super) notify: bool,
    pub(super) overran: bool,
    /// The timer to set for the period that was started.
    pub(super) timer_at: Option<Time>,
}

impl CqWriter<'_> {
    /// Adds one completion. `solicited`: of a receive whose message had the solicited event bit.
    ///
    /// # Errors
    /// Fails with [`CqError::Overrun`]; the completion is lost.
    // Inlined, because a completion whose fields were just written is slow to copy as a whole.
    #[inline]
    pub fn push(&mut self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        let ring = self.ring();
        if ring.armed.is_none() && !ring.overrun && ring.held() < ring.capacity {
            ring.entries.push_back(completion);
            return Ok(());
        }
        self.push_and_tell(completion, solicited)
    }

    /// Adds one completion to a queue that is full or armed.
    #[inline(never)]
    fn push_and_tell(&mut self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        let ring = self.ring();
        let capacity = ring.capacity;
        if ring.overrun {
            return Err(CqError::Overrun { capacity });
        }
        if ring.held() >= capacity {
            ring.overrun = true;
            // A thread that sleeps on the channel must learn that no completion will follow.
            if ring.armed.is_some() {
                self.send_event();
            }
            self.overran = true;
            return Err(CqError::Overrun { capacity });
        }
        ring.entries.push_back(completion);
        let due = match ring.armed {
            None => false,
            Some(ArmKind::Next) => true,
            Some(ArmKind::Solicited) => solicited || !completion.status.is_success(),
        };
        let now = Time::from_ns(completion.timestamp_ns);
        if due && (!completion.status.is_success() || ring.coalescing.add(now)) {
            self.send_event();
        } else if due {
            self.timer_at = self.ring().coalescing.next_timer().or(self.timer_at);
        }
        Ok(())
    }

    /// Disarms the queue, and sends its event after the lock is released.
    pub(super) fn send_event(&mut self) {
        let ring = self.ring();
        ring.armed = None;
        ring.coalescing.reset();
        self.notify = true;
        self.cq.found_empty.store(false, Ordering::Relaxed);
    }

    /// Returns whether `cq` is the locked queue.
    pub(crate) fn is_of(&self, cq: &Cq) -> bool {
        std::ptr::eq(self.cq, cq)
    }

    pub(super) fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a writer holds the lock until its drop")
    }

    /// Returns the number of completions that still fit.
    #[must_use]
    pub fn room(&self) -> u32 {
        let ring = self.ring.as_ref().expect("a writer holds the lock until its drop");
        if ring.overrun { 0 } else { ring.capacity - ring.held() }
    }
}

impl Drop for CqWriter<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.cq.summary.store(ring.summary(), Ordering::Release);
        }
        if let Some(at) = self.timer_at {
            self.cq.moderation_timers.insert(at, self.cq.id);
        }
        if let (true, Some((channel, slot))) = (self.notify, &self.cq.channel) {
            channel.notify(*slot);
        }
        if let (true, Some(events)) = (self.overran, &self.cq.events) {
            events.push(AsyncEvent::Cq(CqEventType::CqErr, self.cq.id));
        }
        if self.is_batch_lock {
            self.cq.batch_locks.fetch_sub(1, Ordering::Release);
        }
    }
}
