//! Batches of send completions, which lock their completion queue once.
//!
//! When one run carries the ACKs of many queue pairs, most of them report to one completion queue.
//! That queue stays locked from one queue pair to the next. No deadlock is possible, because:
//!
//! * A thread that holds a batched lock never blocks on a queue pair. The thread first calls
//!   [`release_locks`](super::context::QpContext::release_locks).
//! * Every other path that completes work, or may, first releases the batched lock
//!   ([`QpCore`](super::qp_core::QpCore), [`Qp::enter_error`](super::Qp)).
//! * The lock is kept over ACKs only. Handling an ACK takes no lock that comes before a completion
//!   queue in the lock order.
//!
//! A thread that destroys the completion queue waits until the batched lock is released
//! ([`Cq::lock_for_batch`]).

use std::cell::{OnceCell, RefCell};

use crate::cq::{Completion, Cq, CqError, CqRef, CqWriter};
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// The most completions that a batch adds before releasing the lock. This bounds how long a
/// polling thread waits.
const MAX_BATCH: u32 = 32;

/// The completion queues of one run. They outlive the lock that a batch holds on one of them.
#[derive(Debug, Default)]
pub(crate) struct BatchQueues([OnceCell<Arc<Cq>>; BatchQueues::MAX]);

impl BatchQueues {
    /// The number of completion queues that a run can batch. Others are locked for each queue pair.
    const MAX: usize = 2;

    /// Returns `cq` as kept here, added if there is room; `None` if not.
    fn get_or_add(&self, cq: &Arc<Cq>) -> Option<&Arc<Cq>> {
        self.0
            .iter()
            .map(|place| place.get_or_init(|| Arc::clone(cq)))
            .find(|kept| Arc::ptr_eq(kept, cq))
    }
}

/// The lock on a completion queue that is held from one queue pair to the next.
#[derive(Default)]
pub(crate) struct BatchedCqLock<'a> {
    /// `None`: batching is off.
    queues: Option<&'a BatchQueues>,
    locked: RefCell<Option<Locked<'a>>>,
}

struct Locked<'a> {
    writer: CqWriter<'a>,
    /// The number of completions that the batch may still add.
    left: u32,
}

impl<'a> BatchedCqLock<'a> {
    /// Turns batching on. `queues` keeps the completion queues.
    pub fn enable(&mut self, queues: &'a BatchQueues) {
        self.queues = Some(queues);
    }

    /// Releases the lock, if one is held.
    #[inline(always)]
    pub fn release(&self) {
        if self.queues.is_some() {
            *self.locked.borrow_mut() = None;
        }
    }

    /// Adds a completion to `cq` and keeps the queue locked. Returns `None` if `cq` cannot be
    /// batched.
    #[inline(always)] // one caller, as `extend`
    fn push(&self, cq: &CqRef, completion: Completion) -> Option<Result<(), CqError>> {
        let queues = self.queues?;
        let mut locked = self.locked.borrow_mut();
        if !locked.as_ref().is_some_and(|locked| locked.writer.is_of(cq) && locked.left > 0) {
            // Release the lock on the other queue before waiting for this one.
            *locked = None;
            *locked = Some(Locked {
                writer: queues.get_or_add(cq.cq())?.lock_for_batch(),
                left: MAX_BATCH,
            });
        }
        locked.as_mut().map(|locked| {
            locked.left -= 1;
            locked.writer.push(completion, false)
        })
    }
}

/// The send completions of one queue pair during one call.
pub(crate) struct SendCompletions<'q, 'c> {
    cq: Option<&'q CqRef>,
    batched_cq: &'q BatchedCqLock<'c>,
    /// The lock for this queue pair only, used if `cq` cannot be batched.
    writer: Option<CqWriter<'q>>,
    timestamp_ns: u64,
    overran: bool,
}

impl<'q, 'c> SendCompletions<'q, 'c> {
    pub fn new(cq: Option<&'q CqRef>, batched_cq: &'q BatchedCqLock<'c>, now: Time) -> Self {
        Self { cq, batched_cq, writer: None, timestamp_ns: now.as_ns(), overran: false }
    }

    /// Adds the completion of a work request, if there is one.
    #[inline(always)]
    pub fn extend(&mut self, completion: Option<Completion>) {
        let (Some(mut completion), Some(cq)) = (completion, self.cq) else { return };
        completion.timestamp_ns = self.timestamp_ns;
        let pushed = self.batched_cq.push(cq, completion);
        let pushed = pushed.unwrap_or_else(|| {
            self.writer.get_or_insert_with(|| cq.lock()).push(completion, false)
        });
        self.overran |= pushed.is_err();
    }

    /// Returns whether the completion queue overran.
    pub fn overran(&self) -> bool {
        self.overran
    }
}
