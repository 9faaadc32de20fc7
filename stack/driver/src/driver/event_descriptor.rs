//! The descriptor of events that a program gets: of a completion channel, of a device's
//! asynchronous events, and of an event channel of connections.
//!
//! The program may set O_NONBLOCK on the descriptor, duplicate it, and pass it to `poll`, `select`
//! or `epoll`, as libibverbs allows (`ibv_get_cq_event(3)`). The kernel's descriptors are never
//! writable (`ib_uverbs_event_poll` in `uverbs_main.c`, `ucma_poll` in `ucma.c`). An `eventfd` is
//! writable at all times, and a program that waits for both would spin. So the program gets an
//! `epoll` descriptor that watches the `eventfd`. It is readable while the count is not 0.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Weak;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use super::eventfd::EventFd;
use crate::cq::Wake;
use crate::sync::Arc;

#[cfg(all(test, not(loom)))]
mod tests;

/// A counter of events, and the descriptor by which a program waits for them. Both are closed on
/// `exec`.
#[derive(Debug)]
pub struct EventDescriptor {
    count: EventFd,
    /// The `epoll` descriptor. It has the mode that the program sets.
    polled: OwnedFd,
}

impl EventDescriptor {
    /// Makes a counter of 0. Taking an event blocks unless the program sets O_NONBLOCK.
    ///
    /// # Errors
    /// The system's, if no descriptor or no memory is left.
    pub fn new() -> Result<Self, Errno> {
        let count = EventFd::new()?;
        let polled = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&polled, &count, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { count, polled })
    }

    /// Returns the counter. It is readable while the descriptor is. The library waits for the
    /// counter, because the descriptor costs one more look.
    #[must_use]
    pub const fn counter(&self) -> &EventFd {
        &self.count
    }

    /// Takes an event: a count, and the event that belongs to it by `next_event`, such as
    /// [`next_event_for_count`](crate::cq::CompletionChannel::next_event_for_count) of a channel.
    /// If the count is void, takes another. Waits for a count unless the descriptor is
    /// non-blocking.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the descriptor is non-blocking and the count is 0, [`Errno::INTR`] if a
    /// signal arrived.
    pub fn take_event<E>(&self, mut next_event: impl FnMut() -> Option<E>) -> Result<E, Errno> {
        loop {
            if let Some(event) = self.try_take_event(&mut next_event)? {
                return Ok(event);
            }
            self.count.take()?;
            if let Some(event) = next_event() {
                return Ok(event);
            }
        }
    }

    /// Takes an event as [`take_event`](Self::take_event) does, and returns `None` where that
    /// function would sleep.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the descriptor is non-blocking and the count is 0.
    pub fn try_take_event<E>(
        &self,
        mut next_event: impl FnMut() -> Option<E>,
    ) -> Result<Option<E>, Errno> {
        while self.count.try_take()? {
            if let Some(event) = next_event() {
                return Ok(Some(event));
            }
        }
        if fcntl_getfl(&self.polled)?.contains(OFlags::NONBLOCK) {
            return Err(Errno::AGAIN);
        }
        Ok(None)
    }
}

impl Wake for EventDescriptor {
    fn wake(&self) {
        self.count.wake();
    }

    fn withdraw(&self, events: u32) -> u32 {
        self.count.withdraw(events)
    }
}

impl AsRef<EventFd> for EventDescriptor {
    fn as_ref(&self) -> &EventFd {
        &self.count
    }
}

/// The descriptor for the program.
impl AsFd for EventDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.polled.as_fd()
    }
}

/// The descriptor for the program.
impl AsRawFd for EventDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.polled.as_raw_fd()
    }
}

/// Wakes a descriptor and, if there is one, a hook.
pub struct EventWake {
    /// The descriptor, which counts the events. It belongs to the engine, because queues that a
    /// program leaves behind keep the queue of events.
    pub descriptor: Weak<EventDescriptor>,
    /// The hook, which counts nothing.
    pub hook: Option<Arc<dyn Wake>>,
}

impl Wake for EventWake {
    fn wake(&self) {
        if let Some(descriptor) = self.descriptor.upgrade() {
            descriptor.wake();
        }
        if let Some(hook) = &self.hook {
            hook.wake();
        }
    }

    fn withdraw(&self, events: u32) -> u32 {
        self.descriptor.upgrade().map_or(events, |descriptor| descriptor.withdraw(events))
    }
}
