//! Wakers for tests.

use std::sync::Arc as StdArc;

use super::Wake;
use urxe_types::sync::atomic::{AtomicU32, Ordering};

/// A waker that counts like an event descriptor in semaphore mode.
pub(super) struct CountingWake(AtomicU32);

impl CountingWake {
    pub fn new() -> StdArc<Self> {
        StdArc::new(Self(AtomicU32::new(0)))
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes a count, as a reader does. Returns `false` if there is none.
    pub fn try_take(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }
}

impl Wake for CountingWake {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn withdraw(&self, events: u32) -> u32 {
        (0..events).take_while(|_| self.try_take()).count() as u32
    }
}

/// A waker whose counts were all taken by a reader, so that none can be withdrawn.
#[cfg(not(loom))]
pub(super) struct AllTaken;

#[cfg(not(loom))]
impl Wake for AllTaken {
    fn wake(&self) {}

    fn withdraw(&self, _: u32) -> u32 {
        0
    }
}
