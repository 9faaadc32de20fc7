//! Polling one completion at a time, with access to its fields (`struct ibv_cq_ex`).
//!
//! ```text
//! start_poll ──> first completion ──advance──> next … ──> none left ──drop──> released
//!      └──> None: the queue is empty (ENOENT)
//! ```
//!
//! From start to end, the polling thread owns the queue for polling, as with the lock that
//! providers of libibverbs hold. Another thread that starts waits for the end. The queue's own lock
//! is not held. So completions can be pushed, [`Cq::poll`] works, and the polling thread may post
//! work requests, even if they complete at once because the queue pair is in the error state.
//!
//! The current completion has left the queue, whether or not the program reads it.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::{Cq, CqError, Ring};
use crate::cq::Completion;
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{ThreadId, current_thread, lock, wait};

/// The thread that polls one by one. Protected by the lock of the queue.
#[derive(Default)]
pub(super) struct PollOwner {
    thread: Option<ThreadId>,
    /// The number of threads that wait for the end.
    waiting: u32,
}

/// A thread's right to poll one by one, and its current completion. Dropping it ends the polling
/// (`ibv_end_poll`).
#[derive(Debug)]
pub struct Poller<'a> {
    cq: &'a Cq,
    current: Completion,
    /// Makes the type `!Send`: the right belongs to this thread.
    of_thread: PhantomData<*const ()>,
}

impl Cq {
    /// Starts polling with the oldest completion (`ibv_start_poll`). Returns `None` if there is
    /// none. Waits while another thread polls one by one.
    ///
    /// # Errors
    /// Fails with [`CqError::Polling`] if this thread polls one by one already, and with
    /// [`CqError::Overrun`] like [`poll`](Self::poll).
    pub fn start_poll(&self) -> Result<Option<Poller<'_>>, CqError> {
        if self.is_quiet() {
            return Ok(None);
        }
        let thread = current_thread();
        let mut ring = lock(&self.ring);
        while let Some(of) = ring.poll_owner.thread {
            if of == thread {
                return Err(CqError::Polling);
            }
            ring.poll_owner.waiting += 1;
            ring = wait(&self.poll_ended, ring);
            ring.poll_owner.waiting -= 1;
        }
        let Some(current) = self.take(&mut ring)? else { return Ok(None) };
        ring.poll_owner.thread = Some(thread);
        Ok(Some(Poller { cq: self, current, of_thread: PhantomData }))
    }

    /// Starts polling like [`start_poll`](Self::start_poll), for a C caller, which can keep no
    /// borrow between calls. The caller gets the next completions by [`poll`](Self::poll). This
    /// thread must call [`end_poll`](Self::end_poll).
    ///
    /// # Errors
    /// As [`start_poll`](Self::start_poll).
    pub fn start_unguarded_poll(&self) -> Result<Option<Completion>, CqError> {
        Ok(self.start_poll()?.map(|poller| ManuallyDrop::new(poller).current))
    }

    /// Ends the polling of this thread. Has no effect if another thread polls.
    pub fn end_poll(&self) {
        let mut ring = lock(&self.ring);
        if ring.poll_owner.thread != Some(current_thread()) {
            return;
        }
        ring.poll_owner.thread = None;
        let wake = ring.poll_owner.waiting > 0;
        drop(ring);
        if wake {
            // Wakes all waiting threads, because the first may find the queue empty and leave
            // without ending.
            self.poll_ended.notify_all();
        }
    }

    fn take(&self, ring: &mut Ring) -> Result<Option<Completion>, CqError> {
        let taken = ring.entries.pop_front();
        self.summary.store(ring.summary(), Ordering::Release);
        match taken {
            None if ring.overrun => Err(CqError::Overrun { capacity: ring.capacity }),
            taken => {
                if let Some(strict) = &self.strict_sends {
                    strict.on_polled(taken.as_slice());
                }
                Ok(taken)
            }
        }
    }
}

impl Poller<'_> {
    /// Takes the next completion (`ibv_next_poll`). Returns `false` if there is none; the current
    /// one stays then.
    ///
    /// # Errors
    /// Fails with [`CqError::Overrun`] like [`Cq::poll`].
    pub fn advance(&mut self) -> Result<bool, CqError> {
        if self.cq.is_quiet() {
            return Ok(false);
        }
        let next = self.cq.take(&mut lock(&self.cq.ring))?;
        if let Some(next) = next {
            self.current = next;
        }
        Ok(next.is_some())
    }

    /// Returns the current completion. Fields without a meaning in RoCE (LIDs, service level, VLAN)
    /// are 0.
    pub const fn completion(&self) -> &Completion {
        &self.current
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.cq.end_poll();
    }
}
