//! Completion queues: polling, waiting in a thread, waiting in a task.
//!
//! | how | what it costs |
//! |---|---|
//! | [`poll`](CompletionQueue::poll) in a loop | a processor; the polling thread receives by itself, which is fastest |
//! | [`start_poll`](CompletionQueue::start_poll) | the same, one completion in hand at a time |
//! | [`wait`](CompletionQueue::wait) | sleeps; the device's background thread receives and wakes |
//! | [`next`](CompletionQueue::next) | the same in a task of any executor |
//! | [`CompletionChannel`] | sleeps in the program's own `poll` or `epoll`, on a descriptor |

mod channel;
mod poller;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::cq::{
    ArmKind, Completion, CompletionChannel as CoreChannel, Cq, CqError, CqId, Moderation,
};
use urxe_stack::device::CreateCqError;
use urxe_stack::port::sim::Stalled;

pub use self::channel::{ChannelError, CompletionChannel, CqEvent};
pub use self::poller::Poller;

use crate::blocking_wait::BlockingWait;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot, poll_next};

/// Completions taken at a time by [`CompletionQueue::drain`].
const DRAIN: usize = 16;

urxe_stack::errors! {
    /// Why waiting for a completion ended without one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum WaitError {
        #[error("no completion within the time given")]
        TimedOut = ETIMEDOUT,
        /// The queue overran.
        #[error(transparent)] Cq(#[from] CqError),
        #[error("this completion queue reports to a completion channel: arm it and wait there")]
        HasChannel = EINVAL,
        #[error("cannot wait for the channel's descriptor: {errno}")]
        Descriptor { errno: Errno } = errno.raw_os_error(),
        /// Nothing is under way in the simulated network, so that nothing can ever come.
        #[error("the simulated network is quiet: no packet is on its way, no timer runs, nothing \
                 will ever complete")]
        Quiet = EDEADLK,
        /// The simulated network makes no progress.
        #[error(transparent)] Stalled(#[from] Stalled) = EDEADLK,
    }
}

/// Where the events of an armed queue go.
pub(crate) enum EventTarget {
    /// To the queue's own wakers.
    Waiters(Arc<WakerList>),
    /// To a channel of the program.
    Channel(CompletionChannel),
}

/// A completion queue (`struct ibv_cq`). Cheap to clone; it ends when the last clone and the last
/// queue pair that reports to it are gone.
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
    /// Makes a completion queue of `capacity` entries (`ibv_create_cq`). Its own
    /// [`wait`](CompletionQueue::wait) and [`next`](CompletionQueue::next) wait for completions.
    ///
    /// # Errors
    /// [`CreateCqError`]: the capacity is 0 or more than the device allows, or there is no memory.
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

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Its number within its device, by which events name it.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.inner.cq.id()
    }

    /// Its channel, if it was made for one.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        match &self.inner.event_target {
            EventTarget::Waiters(_) => None,
            EventTarget::Channel(channel) => Some(channel),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.inner.cq.capacity()
    }

    /// Number of completions inside.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.cq.len()
    }

    /// Whether there is nothing to poll.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.cq.is_empty()
    }

    /// Takes completions, the oldest first, as many as fit; returns their number (`ibv_poll_cq`).
    /// Never sleeps. When there are none, this thread receives what the network has and looks
    /// again.
    ///
    /// # Errors
    /// [`CqError::Overrun`] once the queue overran and all that it held was taken.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let device = &self.inner.device;
        let taken = device.inner.backend.poll(&self.inner.cq, out);
        device.run_ready_wakers();
        taken
    }

    /// Takes one completion, if there is one; as [`poll`](Self::poll).
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_one(&self) -> Result<Option<Completion>, CqError> {
        let mut out = [Completion::default()];
        Ok((self.poll(&mut out)? == 1).then_some(out[0]))
    }

    /// Takes what there is, one after the other; as [`poll`](Self::poll) repeated until it finds
    /// nothing.
    pub fn drain(&self) -> Drain<'_> {
        Drain { cq: self, taken: [Completion::default(); DRAIN], next: 0, count: 0 }
    }

    /// Sleeps until there are completions and takes as many as fit; returns their number, at least
    /// 1 (0 if `out` is empty). `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError`].
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

    /// Sleeps until there is a completion and takes it. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_one(&self, timeout: Option<Duration>) -> Result<Completion, WaitError> {
        let mut out = [Completion::default()];
        self.wait(&mut out, timeout)?;
        Ok(out[0])
    }

    /// Waits in a task until there is a completion, and takes it. Needs no runtime: the future's
    /// waker is called when a completion comes. Dropping the future loses nothing. Several tasks
    /// may wait; each completion goes to one.
    ///
    /// # Errors
    /// The output's: [`WaitError`], never [`WaitError::TimedOut`].
    pub fn next(&self) -> Next<'_> {
        Next { cq: self, slot: None }
    }

    /// Asks for one event on the queue's channel (`ibv_req_notify_cq`). Returns whether completions
    /// are in the queue already: they make no event, so poll again before waiting. Has no effect on
    /// a queue without a channel.
    #[must_use = "completions that are there already make no event"]
    pub fn arm(&self, kind: ArmKind) -> bool {
        self.inner.device.inner.backend.flush_deferred();
        match &self.inner.event_target {
            EventTarget::Waiters(_) => !self.is_empty(),
            EventTarget::Channel(_) => self.inner.cq.arm(kind),
        }
    }

    /// Holds the queue's events back until several completions have come or a time has passed
    /// (`ibv_modify_cq`), so that a busy program wakes less often. It is about whoever sleeps (on a
    /// channel, in [`wait`](Self::wait), in a task): completions are there to be polled at once,
    /// and one in error is told at once.
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
    /// let first = cq.wait_one(None)?;
    /// assert!(first.status.is_success());
    /// assert_eq!(cq.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn moderate(&self, moderation: Moderation) {
        let changed = self.inner.cq.moderate(moderation);
        debug_assert_eq!(changed, Ok(()), "only its last handle destroys a queue");
        self.inner.device.run_ready_wakers();
    }

    /// How the queue's events are held back.
    #[must_use]
    pub fn moderation(&self) -> Moderation {
        self.inner.cq.moderation()
    }

    /// Gives the queue `capacity` entries (`ibv_resize_cq`). What it holds stays.
    ///
    /// # Errors
    /// [`CqError`]: more is inside than would fit, 0, more than the device allows, or no memory.
    /// The queue is then as before.
    pub fn resize(&self, capacity: u32) -> Result<(), CqError> {
        self.inner.cq.resize(capacity).map(|_| ())
    }

    /// Arms the queue for its own wakers, which have registered before. Whether something came in
    /// the meantime.
    fn arm_for_waiters(&self) -> bool {
        // Events of earlier arms are worth nothing any more: whoever waits looks into the queue
        // itself.
        if let Some(channel) = self.inner.cq.channel() {
            while channel.next_event().is_some() {
                self.inner.cq.ack_events(1);
            }
        }
        self.inner.device.inner.backend.flush_deferred();
        self.inner.cq.arm(ArmKind::Next)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.cq.fmt(f)
    }
}

/// Iterator of [`CompletionQueue::drain`]. Completions that it took and did not hand out are lost
/// with it.
#[derive(Debug)]
pub struct Drain<'a> {
    cq: &'a CompletionQueue,
    taken: [Completion; DRAIN],
    next: usize,
    count: usize,
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

/// Future of [`CompletionQueue::next`].
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
        poll_next(&cq.inner.device, wakers, slot, cx, take, || cq.arm_for_waiters())
    }
}
