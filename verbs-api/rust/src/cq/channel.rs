//! Completion channels: one descriptor for the events of several completion queues.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use urxe_stack::cq::{CompletionChannel as CoreChannel, CqId};
use urxe_stack::device::CreateCqError;
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::errno::OsError;

use super::{CompletionQueue, EventTarget, WaitError};
use crate::blocking_wait::BlockingWait;
use crate::device::Device;

/// No completion channel was created, because no descriptor is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot create an event descriptor: {errno}; raise the limit of open files (ulimit -n)")]
#[non_exhaustive]
pub struct ChannelError {
    /// The error of the system.
    pub errno: OsError,
}

impl ChannelError {
    /// Returns the errno that `ibv_create_comp_channel` sets.
    #[must_use]
    pub fn errno(self) -> i32 {
        self.errno.raw_os_error()
    }
}

/// An event of a completion queue, which was armed and received a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqEvent {
    /// The completion queue; see [`CompletionQueue::id`].
    pub cq: CqId,
}

/// A completion channel (`struct ibv_comp_channel`), for programs that use `poll` or `epoll`.
///
/// The descriptor of the channel is readable while an event is pending. Cloning is cheap.
///
/// ```text
///   loop: cq.arm(kind)?  ── completions present ──> poll them
///         └─ wait until the descriptor is readable; channel.try_next(); poll the queue
/// ```
///
/// ```
/// use urxe::{ArmKind, ChannelError, CompletionChannel, CqEvent, CqId, Data, RecvRequest};
/// # use urxe::{ConnectOptions, SendRequest, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd, peer_cq) = (a.alloc_pd()?, b.alloc_pd()?, b.create_cq(16)?);
/// let created: Result<CompletionChannel, ChannelError> = a.create_channel();
/// let channel = created?;
/// let cq = channel.create_cq(16)?;
/// let id: CqId = cq.id();
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// qp.post_recv(&RecvRequest::new(urxe::Gather::EMPTY))?;
/// peer.post_send(&SendRequest::send(Data::EMPTY))?;
/// // `arm` returns true if completions are present, which create no event.
/// if !cq.arm(ArmKind::Next) {
///     let CqEvent { cq: armed } = channel.wait(None)?;
///     assert_eq!(armed, id);
/// }
/// assert!(cq.poll_one()?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionChannel {
    device: Device,
    core: Arc<CoreChannel>,
    descriptor: Arc<EventDescriptor>,
}

impl Device {
    /// Creates a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// Fails with [`ChannelError`] if no descriptor is available.
    pub fn create_channel(&self) -> Result<CompletionChannel, ChannelError> {
        let descriptor = Arc::new(
            EventDescriptor::new().map_err(|errno| ChannelError { errno: OsError::of(errno) })?,
        );
        let core = Arc::new(CoreChannel::new(Box::new(Arc::clone(&descriptor))));
        Ok(CompletionChannel { device: self.clone(), core, descriptor })
    }
}

impl CompletionChannel {
    /// Creates a completion queue that reports its events to this channel.
    ///
    /// # Errors
    /// Fails as [`Device::create_cq`] does.
    pub fn create_cq(&self, capacity: u32) -> Result<CompletionQueue, CreateCqError> {
        CompletionQueue::new(
            &self.device,
            capacity,
            Arc::clone(&self.core),
            EventTarget::Channel(self.clone()),
        )
    }

    /// Takes the oldest event. Returns `None` if no event is pending. The program need not
    /// acknowledge events.
    pub fn try_next(&self) -> Option<CqEvent> {
        self.core.next_event().map(|event| CqEvent { cq: event.cq })
    }

    /// Blocks until an event arrives, and takes it. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails with [`WaitError::TimedOut`], [`WaitError::Descriptor`], and in a simulated network
    /// with [`WaitError::Quiet`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<CqEvent, WaitError> {
        BlockingWait::new(&self.device, timeout).until_with(
            || Ok(self.try_next()),
            |backend, deadline| {
                backend.wait(self.descriptor.counter().as_fd(), deadline, &mut || {
                    self.core.has_events()
                })
            },
        )
    }
}

/// Readable while an event is pending. Do not read from the descriptor:
/// [`CompletionChannel::try_next`] does.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
