//! Small packets that left their queue pairs and wait at their path until somebody sends.

use urxe_types::sync::atomic::{AtomicBool, Ordering};
use urxe_types::sync::{Mutex, lock};

/// A list of at most `MAX`.
#[derive(Debug)]
pub(crate) struct WaitingList<T, const MAX: usize> {
    waiting: Mutex<Vec<T>>,
    /// Whether any waits, so that who sends need not lock for nothing.
    any: AtomicBool,
}

impl<T, const MAX: usize> Default for WaitingList<T, MAX> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<T, const MAX: usize> WaitingList<T, MAX> {
    /// Takes over `more`. How many wait now, and how many there was no room for.
    pub fn add(&self, more: impl ExactSizeIterator<Item = T>) -> (usize, usize) {
        self.add_if(|| true, more)
    }

    /// Does the same if `is_wanted`, which is called under the lock of the list. Else there is no
    /// room for any.
    pub fn add_if(
        &self,
        is_wanted: impl FnOnce() -> bool,
        more: impl ExactSizeIterator<Item = T>,
    ) -> (usize, usize) {
        let mut waiting = lock(&self.waiting);
        let room = if is_wanted() { MAX - waiting.len() } else { 0 };
        let dropped = more.len().saturating_sub(room);
        waiting.extend(more.take(room));
        self.any.store(!waiting.is_empty(), Ordering::Release);
        (waiting.len(), dropped)
    }

    /// Gives what waits for the empty `taken`.
    #[inline]
    pub fn take(&self, taken: &mut Vec<T>) {
        if self.any.load(Ordering::Acquire) {
            let mut waiting = lock(&self.waiting);
            self.any.store(false, Ordering::Release);
            std::mem::swap(&mut *waiting, taken);
        }
    }

    /// The path has another peer now, or none.
    pub fn clear(&self) {
        let mut waiting = lock(&self.waiting);
        self.any.store(false, Ordering::Release);
        waiting.clear();
    }
}
