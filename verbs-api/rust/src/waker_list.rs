//! Lists of wakers, and calling wakers without holding a lock.
//!
//! The core signals events while it holds locks, and its callbacks must not call back into the
//! core. A [`Waker`] may do anything: poll its task at once, or drop the last handle of a queue.
//! Therefore a signal of the core only moves the wakers of a [`WakerList`] to the [`ReadyWakers`]
//! of the device. These are called when the signalling thread holds no lock: after each call of
//! this API, and by the background thread after each round.
//!
//! ```text
//!   future, thread --register--> WakerList --wake (under locks)--> ReadyWakers
//!   ReadyWakers --run (no locks)--> Waker
//! ```
//!
//! No wake-up is lost, because a waiter registers its waker, then arms the event source, then
//! checks for an event again.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use urxe_stack::cq::Wake;
use urxe_stack::driver::AfterProgress;
use urxe_stack::time::Time;

use crate::backend::Advance;
use crate::cq::WaitError;
use crate::device::Device;

/// Wakers to call as soon as the current thread holds no lock.
#[derive(Debug, Default)]
pub(crate) struct ReadyWakers {
    any: AtomicBool,
    wakers: Mutex<VecDeque<Waker>>,
}

impl ReadyWakers {
    /// Queues a waker.
    pub(crate) fn push(&self, waker: Waker) {
        let mut wakers = lock(&self.wakers);
        wakers.push_back(waker);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Calls all queued wakers, one after the other. If one panics, the others stay queued.
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

    /// Calls all queued wakers on a thread that must survive a panic of a waker.
    fn act(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            tracing::error!("a waker panicked");
        }
    }
}

/// The wakers of all threads and tasks that wait for one event source.
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

/// Identifies a registered waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u64);

impl WakerList {
    pub(crate) fn new(ready: Arc<ReadyWakers>) -> Self {
        Self { ready, state: Mutex::default() }
    }

    /// Stores `waker` under `id`, or under a new identifier.
    pub(crate) fn register(&self, id: Option<SlotId>, waker: &Waker) -> SlotId {
        // Wakers are cloned and dropped outside the lock, because both run code of the executor.
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

    /// Removes the waker of `id`.
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

/// A registration in a waker list, which ends when this value is dropped.
pub(crate) struct WakerSlot<W: Deref<Target = WakerList>> {
    list: W,
    id: Option<SlotId>,
}

impl<W: Deref<Target = WakerList>> fmt::Debug for WakerSlot<W> {
    /// Prints what a person sees of a future: whether a task waits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.id.is_some() { "waiting" } else { "idle" })
    }
}

impl<W: Deref<Target = WakerList>> WakerSlot<W> {
    pub(crate) const fn new(list: W) -> Self {
        Self { list, id: None }
    }

    #[cfg(feature = "cm")]
    pub(crate) fn list(&self) -> &W {
        &self.list
    }

    pub(crate) fn register(&mut self, waker: &Waker) {
        self.id = Some(self.list.register(self.id, waker));
    }

    /// Polls a future that waits in this list, in real or virtual time: registers its waker, then
    /// calls `take`. The order ensures that no event is missed between the two.
    #[cfg(feature = "cm")]
    pub(crate) fn poll<T>(
        &mut self,
        device: &Device,
        cx: &Context<'_>,
        take: impl Fn() -> Option<T>,
    ) -> Poll<T> {
        self.register(cx.waker());
        if let Some(taken) = take() {
            return Poll::Ready(taken);
        }
        let moved = device.inner.backend.move_virtual_time();
        match take() {
            Some(taken) => return Poll::Ready(taken),
            // Other tasks run first, then this task runs the next step of virtual time.
            None if moved => cx.waker().wake_by_ref(),
            None => {}
        }
        Poll::Pending
    }
}

impl<W: Deref<Target = WakerList>> Drop for WakerSlot<W> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.list.remove(id);
        }
    }
}

/// Polls a future that waits in `wakers`, in real or virtual time. Returns the value of `take`, or
/// registers the waker and returns `Pending`. `arm` is called as in
/// [`BlockingWait::until`](crate::blocking_wait::BlockingWait::until).
pub(crate) fn poll_next<W: Deref<Target = WakerList> + Clone, T>(
    device: &Device,
    wakers: &W,
    slot: &mut Option<WakerSlot<W>>,
    cx: &Context<'_>,
    mut take: impl FnMut() -> Result<Option<T>, WaitError>,
    arm: impl Fn() -> bool,
) -> Poll<Result<T, WaitError>> {
    loop {
        if let Some(ready) = take().transpose() {
            *slot = None;
            return Poll::Ready(ready);
        }
        slot.get_or_insert_with(|| WakerSlot::new(wakers.clone())).register(cx.waker());
        if arm() {
            continue;
        }
        let advanced = device.inner.backend.advance(Time::NEVER);
        if let Some(ready) = take().transpose() {
            *slot = None;
            return Poll::Ready(ready);
        }
        if advanced? == Advance::Moved {
            // Other tasks run first, then this task runs the next step of virtual time.
            cx.waker().wake_by_ref();
        }
        return Poll::Pending;
    }
}

/// Locks `mutex` and ignores poisoning, because code under these locks leaves no partial changes
/// when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
