//! Who waits for something, and calling them at the right moment.
//!
//! The core wakes under its locks, where nothing may call back into it. A [`Waker`] may do
//! anything: poll the task at once, or drop the last handle of a queue. So the core's wake-up only
//! moves the wakers of a [`Waiters`] to their device's [`ReadyWakers`], and those are called when
//! the thread that did it holds no lock any more: after each call of this API, and by the
//! background thread after each round.
//!
//! ```text
//!   future, thread --register--> Waiters --wake (under locks)--> ReadyWakers --run (no locks)--> Waker
//! ```
//! No wake-up is lost: whoever waits registers, then arms, then looks once more.

use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use urxe_stack::cq::Wake;
use urxe_stack::driver::AfterProgress;

/// Wakers to be called as soon as no lock is held.
#[derive(Debug, Default)]
pub(crate) struct ReadyWakers {
    any: AtomicBool,
    wakers: Mutex<VecDeque<Waker>>,
}

impl ReadyWakers {
    /// Has one called as soon as no lock is held.
    pub(crate) fn push(&self, waker: Waker) {
        let mut wakers = lock(&self.wakers);
        wakers.push_back(waker);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Calls them, one after the other: what one does, or that it panics, takes nothing from the
    /// others.
    pub(crate) fn run(&self) {
        while self.any.load(Ordering::Relaxed) {
            let next = {
                let mut wakers = lock(&self.wakers);
                let next = wakers.pop_front();
                self.any.store(!wakers.is_empty(), Ordering::Relaxed);
                next
            };
            let Some(waker) = next else { return };
            waker.wake();
        }
    }
}

impl AfterProgress for ReadyWakers {
    fn is_due(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Calls them on a thread that must outlive a waker's panic.
    fn act(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            tracing::error!("a waker panicked");
        }
    }
}

/// Who waits for one thing.
#[derive(Debug)]
pub(crate) struct Waiters {
    ready: Arc<ReadyWakers>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    waiting: Vec<(u64, Waker)>,
}

/// Names one waiter's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Waiters {
    pub(crate) fn new(ready: Arc<ReadyWakers>) -> Self {
        Self { ready, state: Mutex::default() }
    }

    /// Puts `waker` in the place of `ticket`, or in a new one.
    pub(crate) fn register(&self, ticket: Option<Ticket>, waker: &Waker) -> Ticket {
        // Cloned and dropped outside the lock: both run the executor's code.
        let waker = waker.clone();
        let mut state = lock(&self.state);
        if let Some(Ticket(number)) = ticket
            && let Some((_, place)) = state.waiting.iter_mut().find(|(other, _)| *other == number)
        {
            let before = std::mem::replace(place, waker);
            drop(state);
            drop(before);
            return Ticket(number);
        }
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push((number, waker));
        Ticket(number)
    }

    /// Gives a place back.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let mut state = lock(&self.state);
        let place = state.waiting.iter().position(|(number, _)| *number == ticket.0);
        let left = place.map(|place| state.waiting.swap_remove(place));
        drop(state);
        drop(left);
    }
}

impl Wake for Waiters {
    fn wake(&self) {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            return;
        }
        let mut ready = lock(&self.ready.wakers);
        ready.extend(state.waiting.drain(..).map(|(_, waker)| waker));
        self.ready.any.store(true, Ordering::Relaxed);
    }
}

/// A place that is given back when its owner goes.
#[derive(Debug)]
pub(crate) struct Place<W: Deref<Target = Waiters>> {
    waiters: W,
    ticket: Option<Ticket>,
}

impl<W: Deref<Target = Waiters>> Place<W> {
    pub(crate) const fn new(waiters: W) -> Self {
        Self { waiters, ticket: None }
    }

    pub(crate) fn waiters(&self) -> &W {
        &self.waiters
    }

    pub(crate) fn register(&mut self, waker: &Waker) {
        self.ticket = Some(self.waiters.register(self.ticket, waker));
    }

    /// What a future that waits here comes to: what `take` gives, or a wake-up when it may give
    /// something. Registered before looking, so that nothing comes in between.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        take: impl FnOnce() -> Option<T>,
    ) -> Poll<T> {
        self.register(cx.waker());
        take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<W: Deref<Target = Waiters>> Drop for Place<W> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.waiters.leave(ticket);
        }
    }
}

/// Locks; a panic under the lock left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
