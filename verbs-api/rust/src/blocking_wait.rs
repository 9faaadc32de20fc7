//! Waiting in a thread, in real or virtual time: the thread sleeps until a waker is called, and
//! receives for its device meanwhile.

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
use urxe_stack::sys::clock;
use urxe_stack::time::Time;

use crate::backend::Backend;
use crate::cq::WaitError;
use crate::device::Device;
use crate::sim::Advance;
use crate::waker_list::{WakerList, WakerSlot};

/// One wait with its deadline.
pub(crate) struct BlockingWait<'a> {
    device: &'a Device,
    /// By the device's clock, which is virtual in a simulated network.
    limit: Time,
    /// By the system's.
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

    /// Waits until `take` finds something. `arm`, called when this thread stands among the
    /// `wakers`, asks for the next wake-up and says whether something came before that.
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
            // What came before that is found by looking once more.
            is_armed = !arm();
            Ok(true)
        })
    }

    /// Waits until `take` finds something. In between, `sleep` waits for a reason to look again;
    /// `false` if its deadline came first.
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
                // What needs no packet (a bind, a request that fails at once) is done when others
                // look for packets to send.
                Advance::Limit => return take()?.ok_or(WaitError::TimedOut),
                Advance::Quiet => return take()?.ok_or(WaitError::Quiet),
                Advance::Real => {}
            }
            let woken = sleep(backend, self.deadline);
            if !woken.map_err(|errno| WaitError::Descriptor { errno })? {
                // It may have come at the last moment.
                return take()?.ok_or(WaitError::TimedOut);
            }
        }
    }
}

thread_local! {
    /// Those that this thread does not use now: making one takes a system call. More than one is
    /// needed only where a waker that runs while this thread waits makes it wait again.
    static SPARE_UNPARKERS: RefCell<Vec<Arc<Unparker>>> = const { RefCell::new(Vec::new()) };
}

/// What wakes a thread.
#[derive(Debug)]
pub(crate) struct Unparker {
    thread: ThreadId,
    is_notified: AtomicBool,
    waker: ThreadWaker<EventFd>,
}

/// The calling thread's unparker for one wait.
#[derive(Debug)]
pub(crate) struct Parker {
    unparker: Arc<Unparker>,
}

impl Parker {
    /// One for the calling thread.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub(crate) fn new() -> Result<Self, Errno> {
        let spare = SPARE_UNPARKERS.with_borrow_mut(Vec::pop);
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

    /// What to ring.
    pub(crate) fn unparker(&self) -> Arc<Unparker> {
        Arc::clone(&self.unparker)
    }

    /// Sleeps until the unparker was is_notified or `deadline` has come; says whether it was is_notified.
    ///
    /// # Errors
    /// The system's.
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
        // Before the caller looks at what it waits for, so that what comes after that look rings
        // anew.
        is_notified.store(false, Ordering::Relaxed);
        slept
    }
}

impl Drop for Parker {
    fn drop(&mut self) {
        let unparker = Arc::clone(&self.unparker);
        // At the end of the thread there is no slot for it any more.
        let _ = SPARE_UNPARKERS.try_with(|spare| spare.borrow_mut().push(unparker));
    }
}

impl std::task::Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.is_notified.store(true, Ordering::Release);
        // The thread itself looks before it sleeps again.
        if self.thread != std::thread::current().id() {
            self.waker.wake();
        }
    }
}
