//! The futures of SENDs, WRITEs, READs and atomic operations.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use urxe_stack::cq::Completion;
use urxe_stack::qp::work_request::{SendFlags, SendOp};

use super::AsyncQueuePair;
use super::driving::Driving;
use super::error::OperationError;
use super::queue::{Inner, Key, VALUE_LEN};
use super::turns::Ticket;
use crate::memory::{MemoryRegion, RegionSlice};
use crate::qp::SignaledRequest;

/// A request that is posted when a slot is free. It is small, because futures are moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub op: SendOp,
    pub flags: SendFlags,
    pub local: Local<'a>,
}

/// The local memory of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Local<'a> {
    None,
    Slice(RegionSlice<'static>),
    Inline(&'a [u8]),
    /// The 8 bytes of the slot.
    Value,
    /// The 8 bytes of the slot, which are stored first.
    Stored(u64),
}

impl<'a> Work<'a> {
    pub fn new(op: SendOp, local: Local<'a>) -> Self {
        Self { op, flags: SendFlags::empty(), local }
    }

    /// Returns the request of a slot.
    pub fn request(&self, inner: &Inner, key: Key) -> SignaledRequest<'a> {
        let start = key.index as usize * VALUE_LEN;
        // The region has 8 bytes for each slot, and lives as long as the queue pair.
        let value = || inner.values.slice(start..start + VALUE_LEN).ok().map(RegionSlice::detached);
        let (slice, inline) = match self.local {
            Local::None => (None, None),
            Local::Inline(bytes) => (None, Some(bytes)),
            Local::Slice(slice) => (Some(slice), None),
            Local::Value => (value(), None),
            Local::Stored(new) => {
                let stored = inner.values.store_u64(start, new);
                debug_assert_eq!(stored, Ok(()), "the region has room for each slot");
                (value(), None)
            }
        };
        SignaledRequest { wr_id: key.wr_id(), op: self.op, flags: self.flags, slice, inline }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Progress {
    /// Not posted. The ticket is that of the wait for a free slot.
    New(Option<Ticket>),
    Posted(Key),
    Done,
}

/// The future of an operation of an [`AsyncQueuePair`], which resolves with the completion of this
/// operation and of no other.
///
/// The request is posted when the future is first polled and the send queue has a free entry.
/// Operations that wait for an entry get it in the order of their first polls.
///
/// As all futures, it must not be polled after it has returned its result. It panics then.
///
/// Dropping the future does not cancel a posted request: a peer may have executed it. Its memory
/// stays registered until the request completes. A request that was not posted yet is never posted.
///
/// ```
/// use urxe::aio::{AsyncQueuePair, Operation};
/// # use urxe::{ConnectOptions, WcOpcode, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (qp, peer) = (
/// #     AsyncQueuePair::builder().create(&a.alloc_pd()?)?,
/// #     AsyncQueuePair::builder().create(&b.alloc_pd()?)?,
/// # );
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// let send: Operation<'_> = qp.send(b"hello").solicited();
/// let completion = pollster::block_on(send)?;
/// assert_eq!(completion.opcode, WcOpcode::Send);
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Operation<'a> {
    pub(super) inner: &'a Inner,
    pub(super) work: Work<'a>,
    /// The memory of the request, until the slot keeps it.
    pub(super) region: Option<Arc<MemoryRegion>>,
    pub(super) progress: Progress,
    driving: Driving,
}

impl<'a> Operation<'a> {
    pub(super) fn new(
        qp: &'a AsyncQueuePair,
        work: Work<'a>,
        region: Option<Arc<MemoryRegion>>,
    ) -> Self {
        let (progress, driving) = (Progress::New(None), Driving::default());
        Self { inner: &qp.inner, work, region, progress, driving }
    }

    /// Starts the request only when all earlier READs, atomics, ATOMIC WRITEs and FLUSHes of this
    /// queue pair have completed (`IBV_SEND_FENCE`).
    pub fn fenced(mut self) -> Self {
        self.work.flags |= SendFlags::FENCE;
        self
    }

    /// Sets the solicited flag, which wakes a peer that armed its queue with
    /// [`ArmKind::Solicited`](crate::ArmKind::Solicited).
    pub fn solicited(mut self) -> Self {
        self.work.flags |= SendFlags::SOLICITED;
        self
    }

    /// Polls for the completion and the former value of an atomic operation.
    fn poll_value(&mut self, cx: &Context<'_>) -> Poll<Result<(Completion, u64), OperationError>> {
        let Self { inner, work, region, progress, driving } = self;
        loop {
            let found = match progress {
                Progress::New(ticket) => match inner.acquire(ticket, cx.waker(), region) {
                    Some(acquired) => Poll::Ready(acquired),
                    None => driving
                        .pend(inner, cx, || inner.acquire(ticket, cx.waker(), region))
                        .map(Result::flatten),
                }
                .map_ok(Step::Slot),
                Progress::Posted(key) => match inner.take_first(*key) {
                    Some(taken) => Poll::Ready(taken),
                    None => driving
                        .pend(inner, cx, || inner.take(*key, Some(cx.waker())))
                        .map(Result::flatten),
                }
                .map_ok(Step::Completed),
                Progress::Done => {
                    panic!("an operation was polled after it had returned its result")
                }
            };
            let outcome = match found {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Step::Slot(key))) => {
                    *progress = Progress::Posted(key);
                    match inner.qp().post_signaled::<1>(&[work.request(inner, key)]) {
                        Ok(()) => continue,
                        Err((_, error)) => {
                            inner.release(key);
                            Err(OperationError::from(error))
                        }
                    }
                }
                Poll::Ready(Ok(Step::Completed(completed))) => Ok(completed),
                Poll::Ready(Err(error)) => Err(inner.explained(error)),
            };
            *progress = Progress::Done;
            driving.end(inner);
            return Poll::Ready(outcome);
        }
    }
}

/// What a poll of an operation found.
enum Step {
    Slot(Key),
    Completed((Completion, u64)),
}

/// The completion of an awaited operation, which succeeded. It dereferences to a [`Completion`].
///
/// A program may ignore it, because a failed operation is an error. A [`Completion`] that a program
/// polled must be checked.
///
/// ```
/// use urxe::WcOpcode;
/// use urxe::aio::{AsyncQueuePair, Completed};
/// # use urxe::{ConnectOptions, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let qp = AsyncQueuePair::builder().create(&a.alloc_pd()?)?;
/// # let peer = AsyncQueuePair::builder().create(&b.alloc_pd()?)?;
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// pollster::block_on(async {
///     qp.send(b"one").await?;
///     let completed: Completed = qp.send(b"two").await?;
///     assert_eq!(completed.opcode, WcOpcode::Send);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completed(Completion);

impl Deref for Completed {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.0
    }
}

impl Future for Operation<'_> {
    type Output = Result<Completed, OperationError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_value(cx).map_ok(|(completion, _)| Completed(completion))
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        match self.progress {
            Progress::New(Some(ticket)) => self.inner.leave(ticket),
            Progress::Posted(key) => self.inner.abandon(key),
            Progress::New(None) | Progress::Done => return,
        }
        self.driving.end(self.inner);
    }
}

impl fmt::Debug for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("work", &self.work)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

/// The future of an atomic operation, which resolves with the former value of the peer's memory.
///
/// It behaves as an [`Operation`]. The queue pair has the memory for the former value.
///
/// ```
/// use urxe::aio::{AsyncQueuePair, AtomicOperation};
/// # use urxe::{Access, ConnectOptions, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let qp = AsyncQueuePair::builder().create(&pd)?;
/// # let peer = AsyncQueuePair::builder().create(&peer_pd)?;
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// let counter = peer_pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
/// let add: AtomicOperation<'_> = qp.fetch_add(counter.remote(), 5);
/// assert_eq!(pollster::block_on(add)?, 0);
/// assert_eq!(pollster::block_on(qp.compare_swap(counter.remote(), 5, 7))?, 5);
/// assert_eq!(counter.load_u64(0)?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct AtomicOperation<'a>(pub(super) Operation<'a>);

impl Future for AtomicOperation<'_> {
    type Output = Result<u64, OperationError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_value(cx).map_ok(|(_, former)| former)
    }
}

/// The operation without its former value, for [`AsyncQueuePair::batch`].
impl<'a> From<AtomicOperation<'a>> for Operation<'a> {
    fn from(atomic: AtomicOperation<'a>) -> Self {
        atomic.0
    }
}
