//! A completion queue while completions go in.

use super::{ArmKind, Cq, CqError, Ring};
use crate::cq::{AsyncEvent, Completion, CqEventType};
use urxe_types::sync::MutexGuard;
use urxe_types::sync::atomic::Ordering;
use urxe_types::time::Time;

/// A completion queue under its lock. Dropping it gives the lock back and then sends what is due.
pub struct CqWriter<'a> {
    pub(super) cq: &'a Cq,
    /// `None` only while dropping.
    pub(super) ring: Option<MutexGuard<'a, Ring>>,
    pub(super) is_batch_lock: bool,
    pub(super) notify: bool,
    pub(super) overran: bool,
    /// When the period ends that began.
    pub(super) timer_at: Option<Time>,
}

impl CqWriter<'_> {
    /// Adds one completion. `solicited`: it is a receive whose message carried the solicited event
    /// bit.
    ///
    /// # Errors
    /// [`CqError::Overrun`]: the completion is lost.
    // Made in its place: what was written in parts a moment ago is slow to copy as a whole.
    #[inline]
    pub fn push(&mut self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        let ring = self.ring();
        if ring.armed.is_none() && !ring.overrun && ring.held() < ring.capacity {
            ring.entries.push_back(completion);
            return Ok(());
        }
        self.push_and_tell(completion, solicited)
    }

    /// The same for a queue that is full, or of which somebody wants an event.
    #[inline(never)]
    fn push_and_tell(&mut self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        let ring = self.ring();
        let capacity = ring.capacity;
        if ring.overrun {
            return Err(CqError::Overrun { capacity });
        }
        if ring.held() >= capacity {
            ring.overrun = true;
            // Whoever sleeps on the channel must learn that nothing more will come.
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

    /// The event goes out once the lock is given back: the queue is no longer armed.
    pub(super) fn send_event(&mut self) {
        let ring = self.ring();
        ring.armed = None;
        ring.coalescing.reset();
        self.notify = true;
    }

    /// Whether it is `cq` that is locked.
    pub(crate) fn is_of(&self, cq: &Cq) -> bool {
        std::ptr::eq(self.cq, cq)
    }

    pub(super) fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a writer holds the lock until it is dropped")
    }

    /// Number of completions that still fit.
    #[must_use]
    pub fn room(&self) -> u32 {
        let ring = self.ring.as_ref().expect("a writer holds the lock until it is dropped");
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
