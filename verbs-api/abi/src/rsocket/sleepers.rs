//! Who sleeps in rpoll, and is told when an rsocket changed.
//!
//! A sleeper waits for descriptors. But another thread may take the event that a descriptor tells
//! of, and the sleeper would sleep on; so who takes one wakes all sleepers, which look again at
//! what they sleep for.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::sys::fork::PerProcess;

use super::answer::Result;
use crate::node::lock;

#[derive(Default)]
struct Sleepers {
    /// How many there are, so that who has nobody to wake takes no lock.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<EventFd>>>,
}

static SLEEPERS: PerProcess<Sleepers> = PerProcess::new(Sleepers::default);

thread_local! {
    /// A thread's descriptor, made when it first sleeps; with the process, since a forked child's
    /// is another.
    static OWN: std::cell::RefCell<Option<(u32, Arc<EventFd>)>> = const { std::cell::RefCell::new(None) };
}

/// A thread that is about to sleep. From its making on it hears of every change.
pub struct Sleeper(Arc<EventFd>);

impl Sleeper {
    pub fn new() -> Result<Self> {
        let own = own()?;
        let sleepers = SLEEPERS.get();
        lock(&sleepers.all).push(Arc::clone(&own));
        sleepers.count.fetch_add(1, Ordering::SeqCst);
        Ok(Self(own))
    }

    /// Forgets what was told until now.
    pub fn clear(&self) {
        while let Ok(true) = self.0.try_take() {}
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let sleepers = SLEEPERS.get();
        let mut all = lock(&sleepers.all);
        if let Some(place) = all.iter().position(|other| Arc::ptr_eq(other, &self.0)) {
            all.swap_remove(place);
            sleepers.count.fetch_sub(1, Ordering::SeqCst);
        }
        drop(all);
        self.clear();
    }
}

fn own() -> Result<Arc<EventFd>> {
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

/// Something changed that a sleeper may wait for.
pub fn wake_all() {
    let sleepers = SLEEPERS.get();
    if sleepers.count.load(Ordering::SeqCst) == 0 {
        return;
    }
    for sleeper in lock(&sleepers.all).iter() {
        sleeper.wake();
    }
}
