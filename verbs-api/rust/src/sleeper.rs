//! A thread that sleeps until a waker is called, and receives for its device meanwhile.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use rustix::io::Errno;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::driver::thread_waker::ThreadWaker;
use urxe_stack::time::Time;

use crate::backend::Backend;

thread_local! {
    /// Those that this thread does not use now: making one takes a system call. More than one is
    /// needed only where a waker that runs while this thread waits makes it wait again.
    static SPARE: RefCell<Vec<Arc<Bell>>> = const { RefCell::new(Vec::new()) };
}

/// What wakes a thread.
#[derive(Debug)]
pub(crate) struct Bell {
    thread: ThreadId,
    rung: AtomicBool,
    waker: ThreadWaker<EventFd>,
}

/// The calling thread's bell for one wait.
#[derive(Debug)]
pub(crate) struct Sleeper {
    bell: Arc<Bell>,
}

impl Sleeper {
    /// One for the calling thread.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub(crate) fn new() -> Result<Self, Errno> {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let bell = match spare {
            Some(bell) => bell,
            None => Arc::new(Bell {
                thread: std::thread::current().id(),
                rung: AtomicBool::new(false),
                waker: ThreadWaker::new(EventFd::new()?),
            }),
        };
        bell.rung.store(false, Ordering::Relaxed);
        Ok(Self { bell })
    }

    /// What to ring.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Sleeps until the bell was rung or `deadline` has come; says whether it was rung.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn sleep(&self, backend: &Backend, deadline: Time) -> Result<bool, Errno> {
        let Bell { rung, waker, .. } = &*self.bell;
        let mut slept = Ok(false);
        let wait = |()| {
            slept = backend
                .wait(waker.descriptor().as_fd(), deadline, &mut || rung.load(Ordering::Acquire))
        };
        waker.sleep(|| (), wait);
        while waker.descriptor().try_take()? {}
        // Before the caller looks at what it waits for, so that what comes after that look rings
        // anew.
        rung.store(false, Ordering::Relaxed);
        slept
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let bell = Arc::clone(&self.bell);
        // At the end of the thread there is no place for it any more.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(bell));
    }
}

impl std::task::Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        // The thread itself looks before it sleeps again.
        if self.thread != std::thread::current().id() {
            self.waker.wake();
        }
    }
}
