//! A bounded list of small packets that left their queue pairs and wait at their path until a
//! thread sends.

use urxe_types::sync::atomic::{AtomicBool, Ordering};
use urxe_types::sync::{Mutex, lock};

/// A list of at most `MAX` entries.
#[derive(Debug)]
pub(crate) struct BoundedList<T, const MAX: usize> {
    pending: Mutex<Vec<T>>,
    /// The list has entries. A sending thread reads this flag first and locks only if there are
    /// some.
    any: AtomicBool,
}

impl<T, const MAX: usize> Default for BoundedList<T, MAX> {
    fn default() -> Self {
        Self { pending: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<T, const MAX: usize> BoundedList<T, MAX> {
    /// Adds `more`. Returns the number of entries now and the number that did not fit, also
    /// because the system has no memory.
    pub fn add(&self, more: impl ExactSizeIterator<Item = T>) -> (usize, usize) {
        self.add_if(|| true, more)
    }

    /// Adds `more` if `is_wanted` returns `true` under the lock of the list. Otherwise no entry
    /// fits. Returns the same as [`add`](Self::add).
    pub fn add_if(
        &self,
        is_wanted: impl FnOnce() -> bool,
        more: impl ExactSizeIterator<Item = T>,
    ) -> (usize, usize) {
        let mut pending = lock(&self.pending);
        let mut room = if is_wanted() { MAX - pending.len() } else { 0 };
        if pending.try_reserve(more.len().min(room)).is_err() {
            room = pending.capacity() - pending.len();
        }
        let dropped = more.len().saturating_sub(room);
        pending.extend(more.take(room));
        self.any.store(!pending.is_empty(), Ordering::Release);
        (pending.len(), dropped)
    }

    /// Moves all entries to `taken`, which must be empty.
    #[inline]
    pub fn take(&self, taken: &mut Vec<T>) {
        if self.any.load(Ordering::Acquire) {
            let mut pending = lock(&self.pending);
            self.any.store(false, Ordering::Release);
            std::mem::swap(&mut *pending, taken);
        }
    }

    /// Removes all entries, because the path is closed or has another peer.
    pub fn clear(&self) {
        let mut pending = lock(&self.pending);
        self.any.store(false, Ordering::Release);
        pending.clear();
    }
}
