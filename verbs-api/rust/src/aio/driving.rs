//! How a future of a queue pair waits: by polling for all futures of its queue pair for a short
//! time, and then by sleeping.
//!
//! | role of the future | it |
//! |---|---|
//! | claimed: polls for all from now on | wakes its own task and returns |
//! | polls | receives, and wakes its own task again |
//! | expired: its time is over | arms the completion queue, sends, sleeps |
//! | sleeps: another future polls | arms the completion queue, sleeps |
//! | rests: no future polls | arms the completion queue, sends, sleeps |
//! | ends | lets another one look, or else the background thread |
//!
//! [`busy_polling`](super::busy_polling) decides the role.
//!
//! A future that polls returns to its executor between two polls, so other tasks run meanwhile.
//! After the first poll of a future, requests of other futures are posted before the first of them
//! is sent, so they share system calls.
//!
//! A future that polls, and is not polled itself, loses its claim. Meanwhile the event of the armed
//! completion queue wakes the others.
//!
//! In a simulated network each future advances virtual time by a step, as
//! [`CompletionQueue::next`](crate::CompletionQueue::next) does.

use std::sync::Arc;
use std::task::{Context, Poll};

use urxe_stack::time::Time;

use super::busy_polling::Role;
use super::error::OperationError;
use super::queue::Inner;
use crate::backend::Advance;
use crate::waker_list::{WakerList, WakerSlot, lock};

/// The part of a future that waits for completions.
#[derive(Debug, Default)]
pub(super) struct Driving {
    /// The number of this future as the one that polls, or 0.
    poller: u64,
    /// The registration with a simulated network in which nothing happens.
    quiet: Option<WakerSlot<Arc<WakerList>>>,
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
            false => {
                let now = backend.now();
                lock(&inner.state).polling.role(&mut self.poller, now, inner.busy_poll_ns)
            }
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
        let polled = lock(&inner.state).polling.end(std::mem::take(&mut self.poller));
        if !polled {
            return;
        }
        if !inner.wake_sleeper() && inner.is_busy() {
            inner.device().inner.backend.stop_polling();
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

#[cfg(test)]
mod tests;
