//! The future of several operations, which are posted together.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::AsyncQueuePair;
use super::driving::Driving;
use super::error::OperationError;
use super::operation::{Operation, Progress};
use super::queue::{Inner, Key};
use super::turns::Ticket;
use crate::qp::SignaledRequest;
use crate::waker_list::lock;

/// Requests that one call posts.
const POSTED_AT_ONCE: usize = 16;

/// The future of [`AsyncQueuePair::batch`], which resolves when all operations have completed.
///
/// The operations are posted in their order, as many at once as the send queue has free entries.
/// After the first failure none is posted any more, and the future resolves with that failure when
/// all posted operations have completed. Dropping the future is as dropping all operations.
///
/// ```
/// use std::sync::Arc;
/// use urxe::aio::{AsyncQueuePair, Batch};
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
/// let table = peer_pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let block = Arc::new(pd.allocate(4096, Access::empty())?);
/// let mut writes = Vec::new();
/// for at in (0..4096).step_by(64) {
///     let remote = table.remote().slice(at as u64..at as u64 + 64)?;
///     writes.push(qp.write(block.share(at..at + 64)?, remote));
/// }
/// let all: Batch<'_> = qp.batch(writes);
/// pollster::block_on(all)?;
/// // The former values of the counters are not needed.
/// let counters = peer_pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
/// let counter = |nr: u64| counters.remote().slice(nr * 8..nr * 8 + 8);
/// let adds = (0..4).map(|nr| Ok(qp.fetch_add(counter(nr)?, 10 + nr)));
/// let adds = adds.collect::<Result<Vec<_>, urxe::RemoteSliceError>>()?;
/// pollster::block_on(qp.batch(adds))?;
/// assert_eq!((counters.load_u64(0)?, counters.load_u64(24)?), (10, 13));
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Batch<'a> {
    inner: &'a Inner,
    operations: Vec<Operation<'a>>,
    /// The number of operations that were posted, always the first ones.
    posted: usize,
    /// The number of operations that have completed, always the first ones.
    completed: usize,
    failed: Option<OperationError>,
    /// The wait for a free entry of the send queue, while nothing is outstanding.
    ticket: Option<Ticket>,
    driving: Driving,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        qp: &'a AsyncQueuePair,
        operations: impl IntoIterator<Item: Into<Operation<'a>>>,
    ) -> Self {
        let operations = Vec::from_iter(operations.into_iter().map(Into::into));
        let inner = &*qp.inner;
        let is_fit = |operation: &Operation<'a>| {
            std::ptr::eq(operation.inner, inner)
                && matches!(operation.progress, Progress::New(None))
        };
        let failed = (!operations.iter().all(is_fit)).then_some(OperationError::NotOfBatch);
        let (ticket, driving) = (None, Driving::default());
        Self { inner, operations, posted: 0, completed: 0, failed, ticket, driving }
    }

    /// Posts as many operations as the send queue has free entries.
    fn post(&mut self) {
        while self.failed.is_none() && self.posted < self.operations.len() {
            let waiting = &mut self.operations[self.posted..];
            let mut count = 0;
            let mut state = lock(&self.inner.state);
            for operation in waiting.iter_mut().take(POSTED_AT_ONCE) {
                match state.fill_free(&mut operation.region) {
                    Some(Ok(key)) => operation.progress = Progress::Posted(key),
                    Some(Err(error)) => {
                        self.failed = Some(error);
                        break;
                    }
                    None => break,
                }
                count += 1;
            }
            drop(state);
            if count == 0 {
                break;
            }
            self.post_acquired(count);
        }
    }

    /// Posts the next `count` operations, which have slots.
    fn post_acquired(&mut self, count: usize) {
        let inner = self.inner;
        let acquired = &mut self.operations[self.posted..self.posted + count];
        let mut requests = [SignaledRequest::EMPTY; POSTED_AT_ONCE];
        for (request, operation) in requests.iter_mut().zip(&*acquired) {
            if let Progress::Posted(key) = operation.progress {
                *request = operation.work.request(inner, key);
            }
        }
        let posted = inner.qp().post_signaled::<POSTED_AT_ONCE>(&requests[..count]);
        let Err((index, error)) = posted else {
            self.posted += count;
            return;
        };
        for operation in &mut acquired[index..] {
            if let Progress::Posted(key) =
                std::mem::replace(&mut operation.progress, Progress::Done)
            {
                inner.release(key);
            }
        }
        self.posted += index;
        self.failed.get_or_insert(error.into());
    }

    fn poll_batch(&mut self, cx: &Context<'_>) -> Poll<Result<(), OperationError>> {
        loop {
            self.post();
            let Self { inner, operations, posted, completed, failed, ticket, driving } = self;
            if completed < posted {
                let outstanding = &mut operations[*completed..*posted];
                let mut look = |waker| take_first_ones(inner, outstanding, waker);
                let found = match look(None) {
                    Some(taken) => Poll::Ready(Ok(taken)),
                    None => driving.pend(inner, cx, || look(Some(cx.waker()))),
                };
                let (count, error) = match found {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(taken)) => taken,
                    // Nothing completes any more.
                    Poll::Ready(Err(error)) => (*posted - *completed, Some(error)),
                };
                *completed += count;
                *failed = failed.or(error);
            } else if failed.is_none() && *posted < operations.len() {
                let operation = &mut operations[*posted];
                let mut look = || inner.acquire(ticket, cx.waker(), &mut operation.region);
                let found = match look() {
                    Some(acquired) => Poll::Ready(acquired),
                    None => driving.pend(inner, cx, look).map(Result::flatten),
                };
                match found {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(key)) => {
                        operation.progress = Progress::Posted(key);
                        self.post_acquired(1);
                    }
                    Poll::Ready(Err(error)) => *failed = Some(error),
                }
            } else {
                driving.end(inner);
                let outcome = failed.map_or(Ok(()), |error| Err(inner.explained(error)));
                return Poll::Ready(outcome);
            }
        }
    }
}

/// Returns the slot of a posted operation.
fn key_of(operation: &Operation<'_>) -> Option<Key> {
    match operation.progress {
        Progress::Posted(key) => Some(key),
        Progress::New(_) | Progress::Done => None,
    }
}

/// Takes the completions of the first operations that have completed. Returns their number with
/// their first error. If there are none, stores the waker for the last operation.
fn take_first_ones(
    inner: &Inner,
    operations: &mut [Operation<'_>],
    waker: Option<&Waker>,
) -> Option<(usize, Option<OperationError>)> {
    let (taken, error) = inner.take_in_order(operations.iter().map_while(key_of));
    if taken > 0 {
        for operation in &mut operations[..taken] {
            operation.progress = Progress::Done;
        }
        return Some((taken, error));
    }
    let (mut count, mut failed, mut others) = (0, None, Vec::new());
    let mut state = lock(&inner.state);
    for operation in operations.iter_mut() {
        let Some(key) = key_of(operation) else { break };
        let Some(done) = state.take_done(key, &mut others) else { break };
        operation.progress = Progress::Done;
        failed = failed.or(done.err());
        count += 1;
    }
    let last: Option<Key> = operations.last().and_then(key_of);
    let unused = match (count, waker, last) {
        (0, Some(waker), Some(last)) => state.store_waker(last, waker.clone()),
        _ => None,
    };
    drop(state);
    drop(unused);
    others.into_iter().for_each(Waker::wake);
    (count > 0).then_some((count, failed))
}

impl Future for Batch<'_> {
    type Output = Result<(), OperationError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_batch(cx)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.inner.leave(ticket);
        }
        // Afterwards none of them is a sleeper that could poll for the others.
        self.operations.clear();
        self.driving.end(self.inner);
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, posted, completed, failed, .. } = self;
        f.debug_struct("Batch")
            .field("operations", &operations.len())
            .field("posted", posted)
            .field("completed", completed)
            .field("failed", failed)
            .finish_non_exhaustive()
    }
}
