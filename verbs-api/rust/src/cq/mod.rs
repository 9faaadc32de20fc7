//! Completion queues.
//!
//! | method | cost |
//! |---|---|
//! | [`poll`](CompletionQueue::poll) in a loop | one processor; the fastest way |
//! | [`start_poll`](CompletionQueue::start_poll) | the same, for one completion at a time |
//! | [`wait`](CompletionQueue::wait) | blocks the thread |
//! | [`next`](CompletionQueue::next) | suspends a task of any executor |
//! | [`CompletionChannel`] | blocks in the program's own `poll` or `epoll`, on a descriptor |
//!
//! Polling is the fastest way because the polling thread itself receives the packets.

mod channel;
mod poller;
mod private;
#[cfg(feature = "stream")]
mod stream;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cq::{
    ArmKind, Completion, CompletionChannel as CoreChannel, Cq, CqError, CqId, Moderation, WcError,
};
use urxe_stack::device::CreateCqError;
use urxe_stack::errno::OsError;

pub use self::channel::{ChannelError, CompletionChannel, CqEvent};
pub use self::poller::Poller;
use self::private::OwnerWake;
#[cfg(feature = "stream")]
pub use self::stream::CompletionStream;

use crate::blocking_wait::BlockingWait;
use crate::device::Device;
#[cfg(feature = "sim")]
use crate::sim::Stalled;
use crate::waker_list::{WakerList, WakerSlot, poll_next};

/// The number of completions that [`Drain`] takes at a time.
const DRAIN: usize = 16;

urxe_stack::errors! {
    /// The reason why a wait ended without a completion of success or an event.
    ///
    /// ```
    /// use std::time::Duration;
    /// use urxe::{WaitError, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cq = Fabric::new(1).device([10, 0, 0, 1])?.create_cq(16)?;
    /// // An hour of virtual time.
    /// assert_eq!(cq.wait_one(Some(Duration::from_secs(3600))), Err(WaitError::TimedOut));
    /// assert_eq!(cq.wait_one(None), Err(WaitError::Quiet));
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum WaitError {
        /// The request of the completion that was taken failed.
        #[error(transparent)] Failed(#[from] WcError) = EIO,
        #[error("the wait timed out")]
        TimedOut = ETIMEDOUT,
        /// The completion queue overran.
        #[error(transparent)] Cq(#[from] CqError),
        #[error("the completion queue reports to a completion channel: \
                 arm the queue and wait there")]
        HasChannel = EINVAL,
        /// The system call of the wait failed.
        #[error("cannot wait for an event descriptor: {errno}")]
        Descriptor { errno: OsError } = errno.raw_os_error(),
        /// No event can follow: the simulated network has no packet in flight and no running timer.
        #[error("the simulated network is quiet: no packet is in flight and no timer is running, \
                 so nothing can complete")]
        Quiet = EDEADLK,
        /// Virtual time does not advance.
        #[cfg(feature = "sim")]
        #[error(transparent)] Stalled(#[from] Stalled) = EDEADLK,
    }
}

/// The receiver of the events of an armed completion queue.
pub(crate) enum EventTarget {
    /// The wakers of the queue itself.
    Waiters(Arc<WakerList>),
    /// A completion channel of the program.
    Channel(CompletionChannel),
    /// The owner of a private queue, which the program has no access to.
    Owner(Arc<OwnerWake>),
}

/// A completion queue (`struct ibv_cq`).
///
/// Cloning is cheap. The queue is destroyed when the last clone and the last queue pair that uses
/// it are dropped.
///
/// ```
/// use urxe::{Completion, CompletionQueue, Data, SendRequest, WcOpcode};
/// # use urxe::{ConnectOptions, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// # let pd = device.alloc_pd()?;
/// let cq: CompletionQueue = device.create_cq(64)?;
/// # let qp = pd.queue_pair(&cq).create()?;
/// # qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// # let region = pd.allocate(64, urxe::Access::LOCAL_WRITE | urxe::Access::REMOTE_WRITE)?;
/// let write = SendRequest::write(Data::inline(b"text"), region.remote()).signaled();
/// for _ in 0..3 {
///     qp.post_send(&write)?;
/// }
/// // Blocks for the first completion, and takes as many as fit.
/// let mut completions = [Completion::default(); 16];
/// let mut count = cq.wait(&mut completions, None)?;
/// // Polls the others.
/// while count < 3 {
///     count += cq.poll(&mut completions[count..])?;
/// }
/// assert!(completions[..3].iter().all(|done| done.opcode == WcOpcode::RdmaWrite));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    cq: Arc<Cq>,
    event_target: EventTarget,
}

impl Device {
    /// Creates a completion queue of `capacity` entries (`ibv_create_cq`), for
    /// [`poll`](CompletionQueue::poll), [`wait`](CompletionQueue::wait) and
    /// [`next`](CompletionQueue::next).
    ///
    /// A queue needs an entry for each request of its queue pairs that can be outstanding. If a
    /// completion finds no free entry, the queue overruns:
    ///
    /// * That completion is lost, and its queue pair enters the error state.
    /// * [`Device::events`] reports [`CqErr`](crate::CqEventType::CqErr).
    /// * Polls and waits return the completions that are in the queue, and then fail with
    ///   [`CqError::Overrun`].
    ///
    /// # Errors
    /// Fails with [`CreateCqError`] if the capacity is 0 or exceeds the limit of the device, or if
    /// no memory is available.
    pub fn create_cq(&self, capacity: u32) -> Result<CompletionQueue, CreateCqError> {
        let wakers = Arc::new(WakerList::new(Arc::clone(&self.inner.ready)));
        let channel = Arc::new(CoreChannel::new(Box::new(Arc::clone(&wakers))));
        CompletionQueue::new(self, capacity, channel, EventTarget::Waiters(wakers))
    }
}

impl CompletionQueue {
    fn new(
        device: &Device,
        capacity: u32,
        channel: Arc<CoreChannel>,
        event_target: EventTarget,
    ) -> Result<Self, CreateCqError> {
        let cq = device.core().create_cq(capacity, Some(channel), 0)?;
        Ok(Self { inner: Arc::new(Inner { device: device.clone(), cq, event_target }) })
    }

    pub(crate) fn core(&self) -> &Arc<Cq> {
        &self.inner.cq
    }

    /// Returns the device of the queue.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns the number of the queue in its device. Events name the queue by this number.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.inner.cq.id()
    }

    /// Returns the completion channel of the queue, if it was created by one.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        match &self.inner.event_target {
            EventTarget::Waiters(_) | EventTarget::Owner(_) => None,
            EventTarget::Channel(channel) => Some(channel),
        }
    }

    /// Returns the wakers of the threads and tasks that wait for completions, unless the queue
    /// reports to a channel.
    #[cfg(feature = "cm")]
    pub(crate) fn waiters(&self) -> Option<&Arc<WakerList>> {
        match &self.inner.event_target {
            EventTarget::Waiters(wakers) => Some(wakers),
            EventTarget::Channel(_) | EventTarget::Owner(_) => None,
        }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.inner.cq.capacity()
    }

    /// Returns the number of completions in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.cq.len()
    }

    /// Returns whether the queue has no completion.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.cq.is_empty()
    }

    /// Takes completions, the oldest first, and returns their number (`ibv_poll_cq`). Never blocks.
    ///
    /// If the queue is empty, this thread receives pending packets and polls the queue once more.
    ///
    /// # Errors
    /// Fails with [`CqError::Overrun`] after the queue overran and all its completions were taken.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let device = &self.inner.device;
        let taken = device.inner.backend.poll(&self.inner.cq, out);
        device.run_ready_wakers();
        taken
    }

    /// Takes one completion, as [`poll`](Self::poll) does. Returns `None` if the queue is empty.
    ///
    /// # Errors
    /// Fails as [`poll`](Self::poll) does.
    pub fn poll_one(&self) -> Result<Option<Completion>, CqError> {
        let mut out = [Completion::default()];
        Ok((self.poll(&mut out)? == 1).then_some(out[0]))
    }

    /// Returns an iterator that polls the queue until it is empty.
    ///
    /// ```
    /// use urxe::{Drain, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cq = Fabric::new(1).device([10, 0, 0, 1])?.create_cq(16)?;
    /// let completions: Drain<'_> = cq.drain();
    /// for completion in completions {
    ///     println!("{}", completion?.status);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn drain(&self) -> Drain<'_> {
        Drain { cq: self, taken: [Completion::default(); DRAIN], next: 0, count: 0 }
    }

    /// Blocks until there is a completion, and takes as many as fit. Returns their number, which is
    /// at least 1, or 0 if `out` is empty. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails with [`WaitError`].
    pub fn wait(
        &self,
        out: &mut [Completion],
        timeout: Option<Duration>,
    ) -> Result<usize, WaitError> {
        let EventTarget::Waiters(wakers) = &self.inner.event_target else {
            return Err(WaitError::HasChannel);
        };
        if out.is_empty() {
            return Ok(0);
        }
        let cq = &self.inner.cq;
        let wait = BlockingWait::new(&self.inner.device, timeout);
        let take = || Ok(cq.poll(out).map(|taken| (taken > 0).then_some(taken))?);
        wait.until(wakers, take, || self.arm_for_waiters())
    }

    /// Blocks until there is a completion, and takes it. With `None` the wait has no time limit.
    ///
    /// The request of the returned completion succeeded.
    ///
    /// ```
    /// use urxe::{Access, Data, SendRequest, WaitError, WcError, WcOpcode, WcStatus};
    /// # use urxe::{ConnectOptions, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// # let qp = pd.queue_pair(&cq).create()?;
    /// # let peer = pd.queue_pair(&device.create_cq(16)?).create()?;
    /// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
    /// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// // The region does not grant WRITEs of a peer.
    /// let region = pd.allocate(64, Access::LOCAL_WRITE)?;
    /// qp.post_send(&SendRequest::write(Data::inline(b"text"), region.remote()).wr_id(7))?;
    /// let error: WcError = match cq.wait_one(None) {
    ///     Err(WaitError::Failed(error)) => error,
    ///     other => panic!("{other:?}"),
    /// };
    /// assert_eq!((error.opcode, error.wr_id), (WcOpcode::RdmaWrite, 7));
    /// assert_eq!((error.status, error.qp_num), (WcStatus::RemAccessErr, qp.qpn()));
    /// println!("{error}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`WaitError`]. If the request failed, the error is [`WaitError::Failed`], and the
    /// completion is taken from the queue.
    pub fn wait_one(&self, timeout: Option<Duration>) -> Result<Completion, WaitError> {
        let mut out = [Completion::default()];
        self.wait(&mut out, timeout)?;
        Ok(out[0].ok()?)
    }

    /// Returns a future that waits for a completion and takes it. As with
    /// [`wait_one`](Self::wait_one), the request of the returned completion succeeded.
    ///
    /// The future needs no runtime: a completion calls its waker. Dropping the future loses no
    /// completion. Several tasks may wait; each completion goes to one of them.
    ///
    /// ```
    /// use urxe::{ConnectOptions, Data, SendRequest, WcOpcode, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// # let qp = pd.queue_pair(&cq).create()?;
    /// # qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// # let region = pd.allocate(64, urxe::Access::LOCAL_WRITE | urxe::Access::REMOTE_WRITE)?;
    /// qp.post_send(&SendRequest::write(Data::inline(b"text"), region.remote()).signaled())?;
    /// let completion = pollster::block_on(cq.next())?;
    /// assert_eq!(completion.opcode, WcOpcode::RdmaWrite);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future fails with [`WaitError`], but never with [`WaitError::TimedOut`].
    pub fn next(&self) -> Next<'_> {
        Next { cq: self, slot: None }
    }

    /// Requests one event on the completion channel of the queue (`ibv_req_notify_cq`).
    ///
    /// Returns whether the queue already has completions. These create no event, so poll the queue
    /// before waiting. On a queue without a channel, this method only returns whether there are
    /// completions.
    #[must_use = "completions that are there already make no event"]
    pub fn arm(&self, kind: ArmKind) -> bool {
        self.inner.device.inner.backend.flush_deferred();
        match &self.inner.event_target {
            EventTarget::Waiters(_) | EventTarget::Owner(_) => !self.is_empty(),
            EventTarget::Channel(_) => self.inner.cq.arm(kind),
        }
    }

    /// Delays the events of the queue until several completions are present or a period has passed
    /// (`ibv_modify_cq`), so that a busy program wakes less often.
    ///
    /// Moderation affects waits on a channel, in [`wait`](Self::wait) and in tasks. Completions can
    /// be polled at once. A failed completion creates an event at once.
    ///
    /// ```
    /// use urxe::{ConnectOptions, Data, Gather, Moderation, RecvRequest, SendRequest, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = Fabric::new(1);
    /// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// # let (pd, peer_pd, peer_cq) = (a.alloc_pd()?, b.alloc_pd()?, b.create_cq(16)?);
    /// let cq = a.create_cq(16)?;
    /// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
    /// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
    /// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// // Wake for each four completions, or half a millisecond after the first.
    /// cq.moderate(Moderation { count: 4, period_us: 500 });
    /// for _ in 0..4 {
    ///     qp.post_recv(&RecvRequest::new(Gather::EMPTY))?;
    ///     peer.post_send(&SendRequest::send(Data::EMPTY))?;
    /// }
    /// let _first = cq.wait_one(None)?;
    /// assert_eq!(cq.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn moderate(&self, moderation: Moderation) {
        let changed = self.inner.cq.moderate(moderation);
        debug_assert_eq!(changed, Ok(()), "only its last handle destroys a queue");
        self.inner.device.run_ready_wakers();
    }

    /// Returns the moderation of the events of the queue.
    #[must_use]
    pub fn moderation(&self) -> Moderation {
        self.inner.cq.moderation()
    }

    /// Changes the number of entries (`ibv_resize_cq`). The completions stay in the queue.
    ///
    /// # Errors
    /// Fails with [`CqError`] in these cases, and leaves the queue unchanged:
    /// * The capacity is 0, exceeds the limit of the device, or is less than the number of
    ///   completions.
    /// * No memory is available.
    pub fn resize(&self, capacity: u32) -> Result<(), CqError> {
        self.inner.cq.resize(capacity).map(|_| ())
    }

    /// Discards the events in the queue's own channel.
    fn discard_events(&self) {
        if let Some(channel) = self.inner.cq.channel() {
            while channel.next_event().is_some() {
                self.inner.cq.ack_events(1);
            }
        }
    }

    /// Arms the queue for its own wakers, which must be registered before. Returns whether a
    /// completion arrived in between.
    pub(crate) fn arm_for_waiters(&self) -> bool {
        // Events of earlier calls are obsolete, because each waiter polls the queue itself.
        self.discard_events();
        self.inner.device.inner.backend.flush_deferred();
        self.inner.cq.arm(ArmKind::Next)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut queue = f.debug_struct("CompletionQueue");
        queue.field("device", &self.device().name()).field("id", &self.id().0);
        queue.field("len", &self.len()).field("capacity", &self.capacity());
        queue.finish_non_exhaustive()
    }
}

/// The iterator of [`CompletionQueue::drain`]. Dropping the iterator loses completions that the
/// iterator took from the queue and did not return.
pub struct Drain<'a> {
    cq: &'a CompletionQueue,
    taken: [Completion; DRAIN],
    next: usize,
    count: usize,
}

impl fmt::Debug for Drain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = &self.taken[self.next..self.count];
        f.debug_struct("Drain").field("cq", self.cq).field("taken", &taken).finish()
    }
}

impl Iterator for Drain<'_> {
    type Item = Result<Completion, CqError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.count {
            self.next = 0;
            self.count = match self.cq.poll(&mut self.taken) {
                Ok(0) => return None,
                Ok(count) => count,
                Err(error) => return Some(Err(error)),
            };
        }
        self.next += 1;
        Some(Ok(self.taken[self.next - 1]))
    }
}

/// The future of [`CompletionQueue::next`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Next<'a> {
    cq: &'a CompletionQueue,
    slot: Option<WakerSlot<&'a WakerList>>,
}

impl Future for Next<'_> {
    type Output = Result<Completion, WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { cq, slot } = &mut *self;
        let cq: &CompletionQueue = cq;
        let EventTarget::Waiters(wakers) = &cq.inner.event_target else {
            return Poll::Ready(Err(WaitError::HasChannel));
        };
        let take = || {
            let mut out = [Completion::default()];
            Ok((cq.inner.cq.poll(&mut out)? == 1).then_some(out[0]))
        };
        let (wakers, arm) = (&&**wakers, || cq.arm_for_waiters());
        let next = poll_next(&cq.inner.device, wakers, slot, cx, take, arm);
        next.map(|taken| Ok(taken?.ok()?))
    }
}
