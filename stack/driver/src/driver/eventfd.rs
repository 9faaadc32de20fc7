//! An event descriptor that counts events: the descriptor of a completion channel and of a device's
//! asynchronous events.
//!
//! The descriptor is an `eventfd` in semaphore mode. Each event adds 1, each read takes 1, and
//! `poll` reports the descriptor readable while the count is not 0. The program may set O_NONBLOCK
//! on it and pass it to `poll` or `epoll`, as libibverbs allows (`ibv_get_cq_event(3)`).

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

use crate::cq::Wake;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, lock};

#[cfg(all(test, not(loom)))]
mod tests;

/// A counter of events in a descriptor, closed on `exec`.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Makes a counter of 0. Reading blocks unless the program sets O_NONBLOCK.
    ///
    /// # Errors
    /// The system's, if no descriptor or no memory is left.
    pub fn new() -> Result<Self, Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Self { fd })
    }

    /// Adds `events` to the count.
    pub fn add(&self, events: u32) {
        if events == 0 {
            return;
        }
        loop {
            match write(&self.fd, &u64::from(events).to_ne_bytes()) {
                Err(Errno::INTR) => {}
                Ok(_) => return,
                Err(error) => {
                    // The program may close the descriptor to get no more events.
                    return tracing::warn!(%error, "cannot signal an event");
                }
            }
        }
    }

    /// Takes one count. Waits for one unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the descriptor is non-blocking and the count is 0, [`Errno::INTR`] if a
    /// signal arrived.
    pub fn take(&self) -> Result<(), Errno> {
        let mut count = [0; 8];
        read(&self.fd, &mut count)?;
        Ok(())
    }

    /// Takes one count without waiting, whatever the mode of the descriptor. Returns whether there
    /// was one.
    ///
    /// # Errors
    /// The system's, but neither [`Errno::AGAIN`] nor [`Errno::INTR`].
    pub fn try_take(&self) -> Result<bool, Errno> {
        let mut count = [0; 8];
        loop {
            // An offset of all ones means "no offset". NOWAIT does not change the mode that the
            // program set.
            match preadv2(
                &self.fd,
                &mut [IoSliceMut::new(&mut count)],
                u64::MAX,
                ReadWriteFlags::NOWAIT,
            ) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes one count, then the event that belongs to it by `next_event`, such as
    /// [`next_event_for_count`](crate::cq::CompletionChannel::next_event_for_count) of a channel.
    /// If the count is void, takes another.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn take_event<E>(&self, mut next_event: impl FnMut() -> Option<E>) -> Result<E, Errno> {
        loop {
            self.take()?;
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
        while self.try_take()? {
            if let Some(event) = next_event() {
                return Ok(Some(event));
            }
        }
        if fcntl_getfl(&self.fd)?.contains(OFlags::NONBLOCK) {
            return Err(Errno::AGAIN);
        }
        Ok(None)
    }
}

impl Wake for EventFd {
    fn wake(&self) {
        self.add(1);
    }

    fn withdraw(&self, events: u32) -> u32 {
        for withdrawn in 0..events {
            match self.try_take() {
                Ok(true) => {}
                Ok(false) => return withdrawn,
                Err(error) => {
                    tracing::warn!(%error, "cannot withdraw an event");
                    return withdrawn;
                }
            }
        }
        events
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Wakes a descriptor and, if there is one, a hook.
pub struct EventWake {
    /// The descriptor, which counts the events.
    pub descriptor: Arc<EventFd>,
    /// The hook, which counts nothing.
    pub hook: Option<Arc<dyn Wake>>,
}

impl Wake for EventWake {
    fn wake(&self) {
        self.descriptor.wake();
        if let Some(hook) = &self.hook {
            hook.wake();
        }
    }

    fn withdraw(&self, events: u32) -> u32 {
        self.descriptor.withdraw(events)
    }
}

/// The descriptor of an event channel of connections. It counts the events of a call when they are
/// [notified](Wake::notify), after the call. Otherwise the woken thread would wait for the core's
/// lock, which the call holds.
#[derive(Debug)]
pub struct DeferredEventFd {
    fd: EventFd,
    /// Events that the descriptor does not count yet.
    due: AtomicU32,
    /// Locked while events move from `due` to the descriptor, or are withdrawn.
    counting: Mutex<()>,
}

impl DeferredEventFd {
    /// Makes a counter of 0.
    ///
    /// # Errors
    /// The system's, if no descriptor or no memory is left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { fd: EventFd::new()?, due: AtomicU32::new(0), counting: Mutex::new(()) })
    }

    /// Returns the descriptor, to take events and to add events that need no notification.
    #[must_use]
    pub const fn fd(&self) -> &EventFd {
        &self.fd
    }
}

impl Wake for DeferredEventFd {
    fn wake(&self) {
        self.due.fetch_add(1, Ordering::Relaxed);
    }

    fn withdraw(&self, events: u32) -> u32 {
        let _counting = lock(&self.counting);
        let less = |due: u32| Some(due.saturating_sub(events));
        let due = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        let uncounted = due.min(events);
        uncounted + self.fd.withdraw(events - uncounted)
    }

    fn notify(&self) {
        let _counting = lock(&self.counting);
        self.fd.add(self.due.swap(0, Ordering::Relaxed));
    }
}
