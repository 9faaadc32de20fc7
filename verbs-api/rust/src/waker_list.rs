//! Who waits for something, and calling them at the right moment.
//!
//! The core wakes under its locks, where nothing may call back into it. A [`Waker`] may do
//! anything: poll the task at once, or drop the last handle of a queue. So the core's wake-up only
//! moves the wakers of a [`WakerList`] to their device's [`ReadyWakers`], and those are called when
//! the thread that did it holds no lock any more: after each call of this API, and by the
//! background thread after each round.
//!
//! ```text
//!   future, thread --register--> WakerList --wake (under locks)--> ReadyWakers --run (no locks)--> Waker
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
use urxe_stack::time::Time;

use crate::cq::WaitError;
use crate::device::Device;
use crate::sim::Advance;

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
pub(crate) struct WakerList {
    ready: Arc<ReadyWakers>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    wakers: Vec<(u64, Waker)>,
}

/// Names one waiter's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u64);

impl WakerList {
    pub(crate) fn new(ready: Arc<ReadyWakers>) -> Self {
        Self { ready, state: Mutex::default() }
    }

    /// Puts `waker` in the slot of `id`, or in a new one.
    pub(crate) fn register(&self, id: Option<SlotId>, waker: &Waker) -> SlotId {
        // Cloned and dropped outside the lock: both run the executor's code.
        let waker = waker.clone();
        let mut state = lock(&self.state);
        if let Some(SlotId(number)) = id
            && let Some((_, slot)) = state.wakers.iter_mut().find(|(other, _)| *other == number)
        {
            let before = std::mem::replace(slot, waker);
            drop(state);
            drop(before);
            return SlotId(number);
        }
        let number = state.next_id;
        state.next_id += 1;
        state.wakers.push((number, waker));
        SlotId(number)
    }

    /// Gives a slot back.
    pub(crate) fn remove(&self, id: SlotId) {
        let mut state = lock(&self.state);
        let slot = state.wakers.iter().position(|(number, _)| *number == id.0);
        let left = slot.map(|slot| state.wakers.swap_remove(slot));
        drop(state);
        drop(left);
    }
}

impl Wake for WakerList {
    fn wake(&self) {
        let mut state = lock(&self.state);
        if state.wakers.is_empty() {
            return;
        }
        let mut ready = lock(&self.ready.wakers);
        ready.extend(state.wakers.drain(..).map(|(_, waker)| waker));
        self.ready.any.store(true, Ordering::Relaxed);
    }
}

/// A slot that is given back when its owner goes.
#[derive(Debug)]
pub(crate) struct WakerSlot<W: Deref<Target = WakerList>> {
    list: W,
    id: Option<SlotId>,
}

impl<W: Deref<Target = WakerList>> WakerSlot<W> {
    pub(crate) const fn new(list: W) -> Self {
        Self { list, id: None }
    }

    pub(crate) fn list(&self) -> &W {
        &self.list
    }

    pub(crate) fn register(&mut self, waker: &Waker) {
        self.id = Some(self.list.register(self.id, waker));
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

impl<W: Deref<Target = WakerList>> Drop for WakerSlot<W> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.list.remove(id);
        }
    }
}

/// What a future that waits among `wakers` comes to, in real or virtual time: what `take` finds,
/// or a wake-up when it may find something. `arm` as in [`BlockingWait::until`].
pub(crate) fn poll_next<'a, T>(
    device: &Device,
    wakers: &'a WakerList,
    slot: &mut Option<WakerSlot<&'a WakerList>>,
    cx: &Context<'_>,
    take: impl Fn() -> Result<Option<T>, WaitError>,
    arm: impl Fn() -> bool,
) -> Poll<Result<T, WaitError>> {
    loop {
        if let Some(ready) = take().transpose() {
            *slot = None;
            return Poll::Ready(ready);
        }
        slot.get_or_insert_with(|| WakerSlot::new(wakers)).register(cx.waker());
        if arm() {
            continue;
        }
        let advanced = device.inner.backend.advance(Time::NEVER);
        if let Some(ready) = take().transpose() {
            *slot = None;
            return Poll::Ready(ready);
        }
        if advanced? == Advance::Moved {
            // Other tasks' turn, then the next step.
            cx.waker().wake_by_ref();
        }
        return Poll::Pending;
    }
}

/// Locks; a panic under the lock left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
