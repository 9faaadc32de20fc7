//! Small packets that left their queue pairs and wait at their path until somebody sends.

use urxe_types::sync::atomic::{AtomicBool, Ordering};
use urxe_types::sync::{Mutex, lock};

/// A list of at most `MAX`.
#[derive(Debug)]
pub(crate) struct BoundedList<T, const MAX: usize> {
    pending: Mutex<Vec<T>>,
    /// Whether any waits, so that who sends need not lock for nothing.
    any: AtomicBool,
}

impl<T, const MAX: usize> Default for BoundedList<T, MAX> {
    fn default() -> Self {
        Self { pending: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<T, const MAX: usize> BoundedList<T, MAX> {
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
        let mut pending = lock(&self.pending);
        let room = if is_wanted() { MAX - pending.len() } else { 0 };
        let dropped = more.len().saturating_sub(room);
        pending.extend(more.take(room));
        self.any.store(!pending.is_empty(), Ordering::Release);
        (pending.len(), dropped)
    }

    /// Gives what waits for the empty `taken`.
    #[inline]
    pub fn take(&self, taken: &mut Vec<T>) {
        if self.any.load(Ordering::Acquire) {
            let mut pending = lock(&self.pending);
            self.any.store(false, Ordering::Release);
            std::mem::swap(&mut *pending, taken);
        }
    }

    /// The path has another peer now, or none.
    pub fn clear(&self) {
        let mut pending = lock(&self.pending);
        self.any.store(false, Ordering::Release);
        pending.clear();
    }
}
