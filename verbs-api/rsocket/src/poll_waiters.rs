//! Threads that sleep in rpoll, and their wake-ups when an rsocket changes.
//!
//! A waiter sleeps on descriptors. Another thread may take the event behind a descriptor, and the
//! waiter would sleep on. Every thread that takes an event therefore wakes all waiters, which then
//! poll their rsockets again.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use crate::error::Result;

#[derive(Default)]
struct Waiters {
    /// The number of waiters. If there is none, a wake-up takes no lock.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<EventFd>>>,
}

static WAITERS: PerProcess<Waiters> = PerProcess::new(Waiters::default);

thread_local! {
    /// The descriptor of a thread, made when the thread first sleeps. The process number is kept
    /// because a forked child needs its own descriptor.
    static OWN: RefCell<Option<(u32, Arc<EventFd>)>> = const { RefCell::new(None) };
}

/// A thread that is about to sleep. Every change after its creation wakes the thread.
pub struct PollWaiter(Arc<EventFd>);

impl PollWaiter {
    pub fn new() -> Result<Self> {
        let own = thread_descriptor()?;
        let waiters = WAITERS.get();
        lock(&waiters.all).push(Arc::clone(&own));
        waiters.count.fetch_add(1, Ordering::SeqCst);
        Ok(Self(own))
    }

    /// Clears earlier wake-ups.
    pub fn clear(&self) {
        while let Ok(true) = self.0.try_take() {}
    }
}

impl AsFd for PollWaiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for PollWaiter {
    fn drop(&mut self) {
        let waiters = WAITERS.get();
        let mut all = lock(&waiters.all);
        if let Some(place) = all.iter().position(|other| Arc::ptr_eq(other, &self.0)) {
            all.swap_remove(place);
            waiters.count.fetch_sub(1, Ordering::SeqCst);
        }
        drop(all);
        self.clear();
    }
}

fn thread_descriptor() -> Result<Arc<EventFd>> {
    OWN.with_borrow_mut(|own| {
        let process = std::process::id();
        if let Some((of, descriptor)) = own
            && *of == process
        {
            return Ok(Arc::clone(descriptor));
        }
        let made = Arc::new(EventFd::new()?);
        *own = Some((process, Arc::clone(&made)));
        Ok(made)
    })
}

/// Wakes all waiters after a change of an rsocket.
pub fn wake_all() {
    let waiters = WAITERS.get();
    if waiters.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    for waiter in lock(&waiters.all).iter() {
        waiter.wake();
    }
}
