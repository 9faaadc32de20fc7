//! A completion queue that is in use.

use std::fmt;
use std::ops::Deref;

use super::{Cq, CqError, DESTROYED};
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::Ordering;

/// A work queue's hold on the completion queue that it reports to: the queue is not destroyed while
/// there is one.
pub struct CqRef(Arc<Cq>);

impl CqRef {
    /// Counts one more user.
    ///
    /// # Errors
    /// [`CqError::Destroyed`].
    pub fn new(cq: Arc<Cq>) -> Result<Self, CqError> {
        let more = |users: u32| users.checked_add(1).filter(|&users| users != DESTROYED);
        match cq.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Self(cq)),
            Err(_) => Err(CqError::Destroyed),
        }
    }

    /// The queue itself, without the hold.
    #[must_use]
    pub const fn cq(&self) -> &Arc<Cq> {
        &self.0
    }
}

impl Deref for CqRef {
    type Target = Cq;

    fn deref(&self) -> &Cq {
        &self.0
    }
}

impl Drop for CqRef {
    fn drop(&mut self) {
        let users = self.0.users.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(users != 0 && users != DESTROYED, "a queue with users is not destroyed");
    }
}

impl fmt::Debug for CqRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
