//! Notification of a program outside the core, with a counter for the events in a queue.
//!
//! A queue of events and an external counter (an event descriptor in semaphore mode) satisfy this
//! invariant whenever the queue's lock is free:
//!
//! ```text
//! count outside + counts taken and not yet consumed = events in the queue + void counts
//! ```
//!
//! A reader takes one count and consumes it for an event. An event that leaves the queue in another
//! way (taken without a count, or withdrawn with its object) removes a count from the counter. If
//! readers hold all counts, one of these becomes void, and its reader must read again. The counter
//! therefore never reports an event that does not exist, and never hides an event.

/// Notifies a program outside the core of events.
///
/// The core calls the methods under one of its locks. They must not block, and must not call the
/// core.
pub trait Wake: Send + Sync {
    /// Adds a count for an event. An implementation may defer the count until
    /// [`notify`](Self::notify).
    fn wake(&self);

    /// Takes back up to `events` counts, for events that left the queue without a count. Returns
    /// the number of counts taken back. An implementation without a counter returns `events`.
    fn withdraw(&self, events: u32) -> u32 {
        events
    }

    /// Adds the deferred counts. Called without a lock, and only by the RDMA IP CM service
    /// (`Cma::poll_notification`).
    fn notify(&self) {}
}

impl<T: Wake + ?Sized> Wake for std::sync::Arc<T> {
    fn wake(&self) {
        (**self).wake();
    }

    fn withdraw(&self, events: u32) -> u32 {
        (**self).withdraw(events)
    }

    fn notify(&self) {
        (**self).notify();
    }
}

/// Has no effect once the value was dropped. An object that may outlive its device so keeps no
/// descriptor of the device open.
impl<T: Wake + ?Sized> Wake for std::sync::Weak<T> {
    fn wake(&self) {
        if let Some(wake) = self.upgrade() {
            wake.wake();
        }
    }

    fn withdraw(&self, events: u32) -> u32 {
        self.upgrade().map_or(events, |wake| wake.withdraw(events))
    }

    fn notify(&self) {
        if let Some(wake) = self.upgrade() {
            wake.notify();
        }
    }
}

/// A [`Wake`] without effect, for programs that poll and for the simulated network.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// The number of counts that readers hold without a corresponding event. Protected by the queue's
/// lock.
#[derive(Debug, Default)]
pub struct VoidCounts(u64);

impl VoidCounts {
    /// Records that `events` events left the queue without a count.
    pub fn withdraw(&mut self, wake: &dyn Wake, events: u32) {
        let removed = wake.withdraw(events).min(events);
        self.0 += u64::from(events - removed);
    }

    /// Consumes a reader's count. Returns whether the count stands for an event.
    pub fn consume(&mut self) -> bool {
        let good = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        good
    }
}
