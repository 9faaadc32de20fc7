//! A descriptor that counts events.
//!
//! The descriptor is an `eventfd` in semaphore mode. Each event adds 1, each read takes 1, and
//! `poll` reports the descriptor readable while the count is not 0. `poll` reports it writable as
//! well, so programs get an [`EventDescriptor`](super::event_descriptor::EventDescriptor) instead.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

use crate::cq::Wake;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, lock};

#[cfg(all(test, not(loom)))]
mod tests;

/// A counter of events in a descriptor, closed on `exec`.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Makes a counter of 0. Reading blocks.
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

    /// Takes one count. Waits until there is one.
    ///
    /// # Errors
    /// [`Errno::INTR`] if a signal arrived.
    pub fn take(&self) -> Result<(), Errno> {
        let mut count = [0; 8];
        read(&self.fd, &mut count)?;
        Ok(())
    }

    /// Takes one count without waiting. Returns whether there was one.
    ///
    /// # Errors
    /// The system's, but neither [`Errno::AGAIN`] nor [`Errno::INTR`].
    pub fn try_take(&self) -> Result<bool, Errno> {
        let mut count = [0; 8];
        loop {
            // An offset of all ones means "no offset".
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

/// The descriptor is an `eventfd` in semaphore mode, such as a duplicate of another one's.
impl From<OwnedFd> for EventFd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsRef<EventFd> for EventFd {
    fn as_ref(&self) -> &EventFd {
        self
    }
}

/// The descriptor of an event channel of connections. It counts the events of a call when they are
/// [notified](Wake::notify), after the call. Otherwise the woken thread would wait for the core's
/// lock, which the call holds.
#[derive(Debug)]
pub struct Deferred<F> {
    descriptor: F,
    /// Events that the descriptor does not count yet.
    due: AtomicU32,
    /// Locked while events move from `due` to the descriptor, or are withdrawn.
    counting: Mutex<()>,
}

impl<F> Deferred<F> {
    /// Defers the events of a descriptor.
    pub fn new(descriptor: F) -> Self {
        Self { descriptor, due: AtomicU32::new(0), counting: Mutex::new(()) }
    }

    /// Returns the descriptor, to take events and to add events that need no notification.
    pub const fn descriptor(&self) -> &F {
        &self.descriptor
    }
}

impl<F: AsRef<EventFd> + Send + Sync> Wake for Deferred<F> {
    fn wake(&self) {
        self.due.fetch_add(1, Ordering::Relaxed);
    }

    fn withdraw(&self, events: u32) -> u32 {
        let _counting = lock(&self.counting);
        let less = |due: u32| Some(due.saturating_sub(events));
        let due = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        let uncounted = due.min(events);
        uncounted + self.descriptor.as_ref().withdraw(events - uncounted)
    }

    fn notify(&self) {
        let _counting = lock(&self.counting);
        self.descriptor.as_ref().add(self.due.swap(0, Ordering::Relaxed));
    }
}
