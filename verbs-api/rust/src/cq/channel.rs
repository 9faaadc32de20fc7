//! Completion channels: one descriptor that tells of events of several completion queues.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use urxe_stack::cq::{CompletionChannel as CoreChannel, CqId};
use urxe_stack::device::CreateCqError;
use urxe_stack::driver::eventfd::EventFd;

use super::{CompletionQueue, Reports};
use crate::device::Device;

/// Why a channel was not made, or waiting on it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// No descriptor is left.
    #[error("cannot make an event descriptor: {0}; raise the limit of open files (ulimit -n)")]
    EventFd(Errno),
    /// The system refused to wait.
    #[error("cannot wait on the channel's descriptor: {0}")]
    Wait(Errno),
}

impl ChannelError {
    /// The system's errno.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::EventFd(errno) | Self::Wait(errno) => errno.raw_os_error(),
        }
    }
}

/// An event of a completion queue: it was armed, and a completion came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqEvent {
    /// Which queue; see [`CompletionQueue::id`].
    pub cq: CqId,
}

/// A completion channel (`struct ibv_comp_channel`), for programs that wait for many things at once by `poll` or `epoll`: its
/// descriptor is readable while an event waits. Cheap to clone.
///
/// ```text
///   loop: cq.arm(kind)?  ── completions there already ──> poll them
///         └─ sleep until the descriptor is readable; channel.try_next(); poll the queue
/// ```
#[derive(Clone)]
pub struct CompletionChannel {
    device: Device,
    core: Arc<CoreChannel>,
    descriptor: Arc<EventFd>,
}

impl Device {
    /// Makes a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// [`ChannelError::EventFd`].
    pub fn create_channel(&self) -> Result<CompletionChannel, ChannelError> {
        let descriptor = Arc::new(EventFd::new().map_err(ChannelError::EventFd)?);
        let core = Arc::new(CoreChannel::new(Box::new(Arc::clone(&descriptor))));
        Ok(CompletionChannel { device: self.clone(), core, descriptor })
    }
}

impl CompletionChannel {
    /// Makes a completion queue whose events come here.
    ///
    /// # Errors
    /// As [`Device::create_cq`].
    pub fn create_cq(&self, capacity: u32) -> Result<CompletionQueue, CreateCqError> {
        CompletionQueue::new(&self.device, capacity, Arc::clone(&self.core), Reports::Channel(self.clone()))
    }

    /// Takes the event that has waited longest, if there is one. It need not be acknowledged.
    pub fn try_next(&self) -> Option<CqEvent> {
        self.core.next_event().map(|event| CqEvent { cq: event.cq })
    }

    /// Sleeps until there is an event, and takes it. `None` if none came in time; without a timeout it waits for ever.
    ///
    /// # Errors
    /// [`ChannelError::Wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>, ChannelError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.try_next() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            wait_readable(&self.descriptor, left).map_err(ChannelError::Wait)?;
        }
    }
}

/// Sleeps until `descriptor` is readable, a signal comes, or `timeout` is over.
pub(crate) fn wait_readable(descriptor: &EventFd, timeout: Option<Duration>) -> Result<(), Errno> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Readable while an event waits. Do not read from it: [`CompletionChannel::try_next`] does.
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
