//! How a future of a queue pair waits: by polling for all futures of its queue pair for a short
//! time, and then by sleeping.
//!
//! | in | out |
//! |---|---|
//! | nobody polls | this future polls: it wakes its own task and returns |
//! | this future polls, and time is left | receives, and wakes its own task again |
//! | this future polls, and no time is left | arms the completion queue, sends, sleeps |
//! | another future polls | arms the completion queue, sleeps |
//! | one polled for long enough, and nothing completed since | arms the queue, sends, sleeps |
//! | the future that polls ends | wakes another one, or else the background thread |
//!
//! A future that polls returns to its executor between two polls, so other tasks run meanwhile.
//! After the first poll of a future, requests of other futures are posted before the first of them
//! is sent, so they share system calls.
//!
//! A future that polls and is not polled itself loses its claim after [`GRACE_NS`]. Meanwhile the
//! event of the armed completion queue wakes the others.
//!
//! In a simulated network each future advances virtual time by a step, as
//! [`CompletionQueue::next`](crate::CompletionQueue::next) does.

use std::sync::Arc;
use std::task::{Context, Poll};

use urxe_stack::time::Time;

use super::error::OperationError;
use super::queue::{BusyPoller, Inner};
use crate::sim::Advance;
use crate::waker_list::{WakerList, WakerSlot, lock};

/// Nanoseconds after its time limit at which a future that is not polled loses its claim.
const GRACE_NS: u64 = 100_000;

/// The part of a future that waits for completions.
#[derive(Debug, Default)]
pub(super) struct Driving {
    /// The number of this future as the one that polls, or 0.
    poller: u64,
    /// The registration with a simulated network in which nothing happens.
    quiet: Option<WakerSlot<Arc<WakerList>>>,
}

/// What a future does that found no completion.
enum Role {
    /// Polls from now on.
    Claimed,
    Polls,
    /// Polled for long enough.
    Expired,
    /// Another future polls.
    Sleeps,
    /// The futures polled for long enough, and nothing completed since.
    Rests,
}

impl Driving {
    /// Waits. `look` returns the result, or stores the waker of the task.
    pub fn pend<T>(
        &mut self,
        inner: &Inner,
        cx: &Context<'_>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Poll<Result<T, OperationError>> {
        let backend = &inner.device().inner.backend;
        let role = match backend.is_simulated() {
            true => Role::Sleeps,
            false => self.role(inner, backend.now()),
        };
        match role {
            Role::Claimed => {
                cx.waker().wake_by_ref();
                return look_or_pending(look);
            }
            Role::Polls => {
                backend.progress();
                inner.device().run_ready_wakers();
                inner.dispatch();
                let found = look_or_pending(look);
                if found.is_pending() {
                    cx.waker().wake_by_ref();
                }
                return found;
            }
            Role::Expired => {
                inner.arm();
                backend.flush_deferred();
                backend.stop_polling();
                inner.device().run_ready_wakers();
            }
            Role::Rests => {
                inner.arm();
                backend.flush_deferred();
            }
            Role::Sleeps => inner.arm(),
        }
        inner.dispatch();
        if let Some(found) = look() {
            return Poll::Ready(Ok(found));
        }
        match self.advance(inner, cx)? {
            Advance::Moved => {
                inner.dispatch();
                let found = look_or_pending(look);
                if found.is_pending() {
                    // Other tasks run first, then this task runs the next step of virtual time.
                    cx.waker().wake_by_ref();
                }
                found
            }
            _ => Poll::Pending,
        }
    }

    /// Ends the wait. If this future polled for others, another one goes on.
    pub fn end(&mut self, inner: &Inner) {
        self.quiet = None;
        if self.poller == 0 {
            return;
        }
        let id = std::mem::take(&mut self.poller);
        let mut state = lock(&inner.state);
        if state.poller.is_none_or(|poller| poller.id != id) {
            return;
        }
        state.poller = None;
        drop(state);
        if !inner.wake_sleeper() && inner.is_busy() {
            inner.device().inner.backend.stop_polling();
        }
    }

    fn role(&mut self, inner: &Inner, now: Time) -> Role {
        let mut state = lock(&inner.state);
        match state.poller {
            Some(BusyPoller { id, until }) if id == self.poller => {
                if now < until {
                    return Role::Polls;
                }
                state.poller = None;
                state.has_rested = true;
                self.poller = 0;
                Role::Expired
            }
            Some(BusyPoller { until, .. }) if now < until.plus_ns(GRACE_NS) => Role::Sleeps,
            _ if state.has_rested => Role::Rests,
            _ => {
                state.last_poller += 1;
                self.poller = state.last_poller;
                let until = now.plus_ns(inner.busy_poll_ns);
                state.poller = Some(BusyPoller { id: self.poller, until });
                Role::Claimed
            }
        }
    }

    /// Runs a step of virtual time. If nothing can happen, the next request wakes the task.
    fn advance(&mut self, inner: &Inner, cx: &Context<'_>) -> Result<Advance, OperationError> {
        let backend = &inner.device().inner.backend;
        let mut advanced = backend.advance(Time::NEVER)?;
        if advanced == Advance::Quiet
            && let Some(quiet) = backend.quiet_wakers()
        {
            self.quiet.get_or_insert_with(|| WakerSlot::new(quiet)).register(cx.waker());
            // Another thread may have posted a request before the waker was registered.
            advanced = backend.advance(Time::NEVER)?;
        }
        Ok(advanced)
    }
}

fn look_or_pending<T>(mut look: impl FnMut() -> Option<T>) -> Poll<Result<T, OperationError>> {
    look().map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
}
