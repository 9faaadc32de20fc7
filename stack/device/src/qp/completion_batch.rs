//! Completions of sends: those that come together lock their queue once.
//!
//! Where the acknowledgements of many queue pairs come in one run, most report to one queue, and it
//! stays locked from one queue pair to the next. Nobody waits for another for ever because
//!
//! * who carries a locked queue waits for no queue pair
//!   ([`Device::receive`](crate::device::Device::receive)), as for pins;
//! * all else that completes something, or may, lets go of it first
//!   ([`QpCore`](super::qp_core::QpCore), [`Qp::enter_error`](super::Qp));
//! * it is carried over acknowledgements only, which touch nothing that a queue's lock stands
//!   before.
//!
//! Who destroys the queue meanwhile, after all that reports to it, waits until it is let go of
//! ([`Cq::lock_for_batch`]).

use std::cell::{OnceCell, RefCell};

use crate::cq::{Completion, Cq, CqError, CqRef, CqWriter};
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// So many completions go to a queue before it is let go of: who polls it waits for no more than
/// these.
const MAX_BATCH: u32 = 32;

/// The completion queues of a run. They outlive what is carried of them.
#[derive(Debug, Default)]
pub(crate) struct BatchQueues([OnceCell<Arc<Cq>>; BatchQueues::MAX]);

impl BatchQueues {
    /// If a run has more, those are locked for each queue pair.
    const MAX: usize = 2;

    /// Keeps `cq`. `None`: there are as many others.
    fn get_or_add(&self, cq: &Arc<Cq>) -> Option<&Arc<Cq>> {
        self.0
            .iter()
            .map(|place| place.get_or_init(|| Arc::clone(cq)))
            .find(|kept| Arc::ptr_eq(kept, cq))
    }
}

/// A queue that stays locked from one queue pair to the next.
#[derive(Default)]
pub(crate) struct BatchedCqLock<'a> {
    /// `None`: nothing is carried.
    queues: Option<&'a BatchQueues>,
    locked: RefCell<Option<Locked<'a>>>,
}

struct Locked<'a> {
    writer: CqWriter<'a>,
    /// So many more completions may go to it.
    left: u32,
}

impl<'a> BatchedCqLock<'a> {
    /// From now on one of `queues` may be carried.
    pub fn enable(&mut self, queues: &'a BatchQueues) {
        self.queues = Some(queues);
    }

    /// Lets go of the queue that is carried, if one is.
    #[inline(always)]
    pub fn release(&self) {
        if self.queues.is_some() {
            *self.locked.borrow_mut() = None;
        }
    }

    /// Adds a completion to `cq`, and carries it on. `None`: it cannot be carried.
    #[inline(always)] // called in one place, as is `extend`
    fn push(&self, cq: &CqRef, completion: Completion) -> Option<Result<(), CqError>> {
        let queues = self.queues?;
        let mut locked = self.locked.borrow_mut();
        if !locked.as_ref().is_some_and(|locked| locked.writer.is_of(cq) && locked.left > 0) {
            // Let go of before another is waited for.
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

/// Completions of one queue pair.
pub(crate) struct SendCompletions<'q, 'c> {
    cq: Option<&'q CqRef>,
    batched_cq: &'q BatchedCqLock<'c>,
    /// If it cannot be carried.
    writer: Option<CqWriter<'q>>,
    timestamp_ns: u64,
    overran: bool,
}

impl<'q, 'c> SendCompletions<'q, 'c> {
    pub fn new(cq: Option<&'q CqRef>, batched_cq: &'q BatchedCqLock<'c>, now: Time) -> Self {
        Self { cq, batched_cq, writer: None, timestamp_ns: now.as_ns(), overran: false }
    }

    /// Adds what an entry completed with, if it makes a completion.
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

    /// Whether the queue overran.
    pub fn overran(&self) -> bool {
        self.overran
    }
}
