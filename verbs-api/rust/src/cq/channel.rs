//! Completion channels: one descriptor that tells of events of several completion queues.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::cq::{CompletionChannel as CoreChannel, CqId};
use urxe_stack::device::CreateCqError;
use urxe_stack::driver::eventfd::EventFd;

use super::{CompletionQueue, EventTarget, WaitError};
use crate::blocking_wait::BlockingWait;
use crate::device::Device;

/// No channel was made: no descriptor is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot make an event descriptor: {errno}; raise the limit of open files (ulimit -n)")]
pub struct ChannelError {
    /// The system's reason.
    pub errno: Errno,
}

impl ChannelError {
    /// The errno that `ibv_create_comp_channel` sets.
    #[must_use]
    pub fn errno(self) -> i32 {
        self.errno.raw_os_error()
    }
}

/// An event of a completion queue: it was armed, and a completion came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqEvent {
    /// Which queue; see [`CompletionQueue::id`].
    pub cq: CqId,
}

/// A completion channel (`struct ibv_comp_channel`), for programs that wait for many things at once
/// by `poll` or `epoll`: its descriptor is readable while an event waits. Cheap to clone.
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
    /// [`ChannelError`].
    pub fn create_channel(&self) -> Result<CompletionChannel, ChannelError> {
        let descriptor = Arc::new(EventFd::new().map_err(|errno| ChannelError { errno })?);
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
        CompletionQueue::new(
            &self.device,
            capacity,
            Arc::clone(&self.core),
            EventTarget::Channel(self.clone()),
        )
    }

    /// Takes the event that has waited longest, if there is one. It need not be acknowledged.
    pub fn try_next(&self) -> Option<CqEvent> {
        self.core.next_event().map(|event| CqEvent { cq: event.cq })
    }

    /// Sleeps until there is an event, and takes it. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], [`WaitError::Descriptor`], and in a simulated network
    /// [`WaitError::Quiet`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<CqEvent, WaitError> {
        BlockingWait::new(&self.device, timeout).until_with(
            || Ok(self.try_next()),
            |backend, deadline| {
                backend.wait(self.as_fd(), deadline, &mut || self.core.has_events())
            },
        )
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
