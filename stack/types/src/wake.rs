//! Waking somebody outside the core, with counts that stand for events.
//!
//! A queue of events and a counter outside (an event descriptor in semaphore mode) are kept
//! together by
//!
//! ```text
//! count outside + counts taken and not yet redeemed = events in the queue + void counts
//! ```
//!
//! which holds whenever the queue's lock is free. A reader takes one count and redeems it for an
//! event. An event that leaves the queue another way (taken without a count, or withdrawn with its
//! object) takes a count out of the counter; if readers hold all of them already, one of those
//! becomes void, and whoever redeems it reads again. So the counter never says "readable" without
//! an event, and never hides one.

/// Tells somebody outside the core that an event came.
///
/// Called under a lock of the core: it must not block, nor call the core.
pub trait Wake: Send + Sync {
    /// One event came: add a count. Who is [told to notify](Self::notify) may keep it until
    /// then.
    fn wake(&self);

    /// `events` events left the queue without a count: take as many counts back as are there, and
    /// return their number. Who does not count says `events`.
    fn withdraw(&self, events: u32) -> u32 {
        events
    }

    /// Tells of counts that were kept. Called under no lock, and only by the service of connections
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

/// Wakes nobody: for programs that ask by themselves, and for the simulated network.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// Counts that readers hold and that stand for no event any more. Lives under the queue's lock.
#[derive(Debug, Default)]
pub struct VoidCounts(u64);

impl VoidCounts {
    /// `events` events left the queue without a count.
    pub fn withdraw(&mut self, wake: &dyn Wake, events: u32) {
        let removed = wake.withdraw(events).min(events);
        self.0 += u64::from(events - removed);
    }

    /// A reader hands in a count; says whether it is good for an event.
    pub fn consume(&mut self) -> bool {
        let good = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        good
    }
}
