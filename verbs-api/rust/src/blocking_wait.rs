//! Blocking waits, in real or virtual time.
//!
//! A blocked thread sleeps until its waker is called. Meanwhile the thread may receive packets for
//! its device.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::ThreadId;
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::driver::thread_waker::ThreadWaker;
use urxe_stack::errno::OsError;
use urxe_stack::sys::clock;
use urxe_stack::time::Time;

use crate::backend::{Advance, Backend};
use crate::cq::WaitError;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot};

/// A wait of one thread, with a deadline.
pub(crate) struct BlockingWait<'a> {
    device: &'a Device,
    /// The deadline by the clock of the device, which is virtual in a simulated network.
    limit: Time,
    /// The deadline by the clock of the system.
    deadline: Time,
}

impl<'a> BlockingWait<'a> {
    pub(crate) fn new(device: &'a Device, timeout: Option<Duration>) -> Self {
        Self {
            device,
            limit: timeout.map_or(Time::NEVER, |timeout| device.inner.backend.now() + timeout),
            deadline: timeout.map_or(Time::NEVER, |timeout| clock::now() + timeout),
        }
    }

    /// Blocks until `take` returns a value.
    ///
    /// After this thread has registered its waker in `wakers`, `until` calls `arm`. It must request
    /// the next wake-up and return whether an event arrived before that.
    pub(crate) fn until<T>(
        &self,
        wakers: &WakerList,
        take: impl FnMut() -> Result<Option<T>, WaitError>,
        mut arm: impl FnMut() -> bool,
    ) -> Result<T, WaitError> {
        let mut sleeping: Option<(Parker, Waker, WakerSlot<&WakerList>)> = None;
        let mut is_armed = false;
        self.until_with(take, |backend, deadline| {
            let (parker, waker, slot) = match &mut sleeping {
                Some(sleeping) => sleeping,
                None => {
                    let parker = Parker::new()?;
                    let waker = Waker::from(parker.unparker());
                    sleeping.insert((parker, waker, WakerSlot::new(wakers)))
                }
            };
            if std::mem::take(&mut is_armed) {
                return parker.sleep(backend, deadline);
            }
            slot.register(waker);
            // If an event arrived before arming, the loop calls `take` again.
            is_armed = !arm();
            Ok(true)
        })
    }

    /// Blocks until `take` returns a value. Between two calls of `take`, `sleep` blocks until there
    /// is a reason to call `take` again. `sleep` returns `false` if its deadline passed first.
    pub(crate) fn until_with<T>(
        &self,
        mut take: impl FnMut() -> Result<Option<T>, WaitError>,
        mut sleep: impl FnMut(&Backend, Time) -> Result<bool, Errno>,
    ) -> Result<T, WaitError> {
        let backend = &self.device.inner.backend;
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            match backend.advance(self.limit)? {
                Advance::Moved => continue,
                // Work that needs no packet, such as a bind or a request that fails at once,
                // completes when another thread collects packets to send.
                Advance::Limit => return take()?.ok_or(WaitError::TimedOut),
                Advance::Quiet => return take()?.ok_or(WaitError::Quiet),
                Advance::Real => {}
            }
            let woken = sleep(backend, self.deadline);
            if !woken.map_err(|errno| WaitError::Descriptor { errno: OsError::of(errno) })? {
                // The event may have arrived just before the deadline.
                return take()?.ok_or(WaitError::TimedOut);
            }
        }
    }
}

thread_local! {
    /// Unused unparkers of this thread, kept because creating one takes a system call. A thread
    /// needs more than one only if a waker that runs inside a wait starts another wait.
    static SPARE_UNPARKERS: RefCell<Vec<Arc<Unparker>>> = const { RefCell::new(Vec::new()) };
}

/// The notification flag and the descriptor that wake one thread.
#[derive(Debug)]
pub(crate) struct Unparker {
    thread: ThreadId,
    is_notified: AtomicBool,
    waker: ThreadWaker<EventFd>,
}

/// An unparker of the calling thread, reserved for one wait.
#[derive(Debug)]
pub(crate) struct Parker {
    unparker: Arc<Unparker>,
}

impl Parker {
    /// Returns a parker for the calling thread.
    ///
    /// # Errors
    /// Fails with the error of the system if no descriptor is available.
    pub(crate) fn new() -> Result<Self, Errno> {
        // This fails while the thread exits, when its thread-local storage is already destroyed.
        let spare = SPARE_UNPARKERS.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let unparker = match spare {
            Some(unparker) => unparker,
            None => Arc::new(Unparker {
                thread: std::thread::current().id(),
                is_notified: AtomicBool::new(false),
                waker: ThreadWaker::new(EventFd::new()?),
            }),
        };
        unparker.is_notified.store(false, Ordering::Relaxed);
        Ok(Self { unparker })
    }

    /// Returns the handle that wakes this parker.
    pub(crate) fn unparker(&self) -> Arc<Unparker> {
        Arc::clone(&self.unparker)
    }

    /// Blocks until the unparker is notified or `deadline` passes. Returns `false` if `deadline`
    /// passed first.
    ///
    /// # Errors
    /// Fails with the error of the system.
    pub(crate) fn sleep(&self, backend: &Backend, deadline: Time) -> Result<bool, Errno> {
        let Unparker { is_notified, waker, .. } = &*self.unparker;
        let mut slept = Ok(false);
        let wait = |()| {
            slept = backend.wait(waker.descriptor().as_fd(), deadline, &mut || {
                is_notified.load(Ordering::Acquire)
            })
        };
        waker.sleep(|| (), wait);
        while waker.descriptor().try_take()? {}
        // The flag is cleared before the caller calls `take`, so an event after that call sets the
        // flag again.
        is_notified.store(false, Ordering::Relaxed);
        slept
    }
}

impl Drop for Parker {
    fn drop(&mut self) {
        let unparker = Arc::clone(&self.unparker);
        // This fails while the thread exits, as above.
        let _ = SPARE_UNPARKERS.try_with(|spare| spare.borrow_mut().push(unparker));
    }
}

impl std::task::Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.is_notified.store(true, Ordering::Release);
        // The thread itself checks the flag before it sleeps.
        if self.thread != std::thread::current().id() {
            self.waker.wake();
        }
    }
}
