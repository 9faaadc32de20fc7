//! Who sleeps in rpoll, and is told when an rsocket changed.
//!
//! A waiter waits for descriptors. But another thread may take the event that a descriptor tells
//! of, and the waiter would sleep on; so who takes one wakes all waiters, which look again at
//! what they sleep for.

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
    /// How many there are, so that who has nobody to wake takes no lock.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<EventFd>>>,
}

static WAITERS: PerProcess<Waiters> = PerProcess::new(Waiters::default);

thread_local! {
    /// A thread's descriptor, made when it first sleeps; with the process, since a forked child's
    /// is another.
    static OWN: std::cell::RefCell<Option<(u32, Arc<EventFd>)>> = const { std::cell::RefCell::new(None) };
}

/// A thread that is about to sleep. From its making on it hears of every change.
pub struct PollWaiter(Arc<EventFd>);

impl PollWaiter {
    pub fn new() -> Result<Self> {
        let own = thread_descriptor()?;
        let waiters = WAITERS.get();
        lock(&waiters.all).push(Arc::clone(&own));
        waiters.count.fetch_add(1, Ordering::SeqCst);
        Ok(Self(own))
    }

    /// Forgets what was told until now.
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

/// Something changed that a waiter may wait for.
pub fn wake_all() {
    let waiters = WAITERS.get();
    if waiters.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    for waiter in lock(&waiters.all).iter() {
        waiter.wake();
    }
}
