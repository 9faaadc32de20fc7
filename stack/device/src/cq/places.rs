//! How many completion queues there are on a device.

use urxe_types::sync::Arc;
use urxe_types::sync::atomic::{AtomicU32, Ordering};

#[cfg(all(test, not(loom)))]
mod tests;

/// The places for completion queues on a device, by how many are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<AtomicU32>);

impl Places {
    /// One of `allowed`; `None` when all are taken.
    pub fn take(&self, allowed: u32) -> Option<Place> {
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(self.clone()))
    }
}

/// A queue's place, which is free again when the last who holds the queue lets go of it.
#[derive(Debug)]
pub(crate) struct Place(Places);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
