//! Polling one completion at a time, with its fields read on demand (`struct ibv_cq_ex`).
//!
//! ```text
//! start_poll ──> first completion in hand ──advance──> next … ──> none left ──drop──> another thread's turn
//!      └──> None: the queue is empty (ENOENT)
//! ```
//! Between start and end the queue is the polling thread's: who starts meanwhile waits for the end,
//! as with the lock that providers of libibverbs hold. It is a turn and not the queue's own lock,
//! so completions keep coming in, [`Cq::poll`] still works, and the polling thread may post between
//! two completions even where that completes at once (a queue pair in error).
//!
//! A completion is out of the queue as soon as it is in hand, whether or not it is looked at.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::{Cq, CqError, Ring};
use crate::cq::Completion;
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{ThreadId, current_thread, lock, wait};

/// Whose turn it is, under the queue's lock.
#[derive(Default)]
pub(super) struct PollOwner {
    thread: Option<ThreadId>,
    /// Threads that wait for the end of it.
    waiting: u32,
}

/// One thread's turn at a queue, with one completion in hand. Dropping it ends the turn
/// (`ibv_end_poll`).
#[derive(Debug)]
pub struct Poller<'a> {
    cq: &'a Cq,
    current: Completion,
    /// The turn is this thread's.
    of_thread: PhantomData<*const ()>,
}

impl Cq {
    /// Begins a turn with the oldest completion in hand (`ibv_start_poll`); `None` if there is
    /// none. Waits while another thread has its turn.
    ///
    /// # Errors
    /// [`CqError::Polling`] if this thread has its turn already, [`CqError::Overrun`] as
    /// [`poll`](Self::poll).
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

    /// Begins a turn as [`start_poll`](Self::start_poll) does, for a caller who can keep no borrow
    /// from call to call, as C: what it takes next it polls, and the turn lasts until this thread
    /// ends it by [`end_poll`](Self::end_poll).
    ///
    /// # Errors
    /// Those of [`start_poll`](Self::start_poll).
    pub fn start_unguarded_poll(&self) -> Result<Option<Completion>, CqError> {
        Ok(self.start_poll()?.map(|poller| ManuallyDrop::new(poller).current))
    }

    /// Ends this thread's turn. That of another thread goes on.
    pub fn end_poll(&self) {
        let mut ring = lock(&self.ring);
        if ring.poll_owner.thread != Some(current_thread()) {
            return;
        }
        ring.poll_owner.thread = None;
        let wake = ring.poll_owner.waiting > 0;
        drop(ring);
        if wake {
            // All: the first may find the queue empty and leave without a turn to end.
            self.poll_ended.notify_all();
        }
    }

    fn take(&self, ring: &mut Ring) -> Result<Option<Completion>, CqError> {
        let taken = ring.entries.pop_front();
        self.summary.store(ring.summary(), Ordering::Release);
        match taken {
            None if ring.overrun => Err(CqError::Overrun { capacity: ring.capacity }),
            taken => Ok(taken),
        }
    }
}

impl Poller<'_> {
    /// Takes the next completion in hand (`ibv_next_poll`); false if there is none, and then the
    /// last one stays.
    ///
    /// # Errors
    /// [`CqError::Overrun`] as [`Cq::poll`].
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

    /// The completion in hand. Fields that RoCE has no use for (LIDs, service level, VLAN) are 0.
    #[must_use]
    pub const fn completion(&self) -> &Completion {
        &self.current
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.cq.end_poll();
    }
}
