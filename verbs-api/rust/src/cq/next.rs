//! Waiting for a completion in a task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use urxe_stack::cq::Completion;

use super::{CompletionQueue, Reports, WaitError};
use crate::sim::Advance;
use crate::waiters::{Place, Waiters};

/// Future of [`CompletionQueue::next`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Next<'a> {
    cq: &'a CompletionQueue,
    place: Option<Place<'a>>,
}

impl<'a> Next<'a> {
    pub(super) fn new(cq: &'a CompletionQueue) -> Self {
        Self { cq, place: None }
    }

    fn waiters(&self) -> Option<&'a Waiters> {
        match &self.cq.inner.reports {
            Reports::Own(waiters) => Some(waiters),
            Reports::Channel(_) => None,
        }
    }

    fn take(&self) -> Result<Option<Completion>, WaitError> {
        let mut out = [Completion::default()];
        Ok((self.cq.inner.cq.poll(&mut out)? == 1).then_some(out[0]))
    }
}

impl Future for Next<'_> {
    type Output = Result<Completion, WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiters) = self.waiters() else { return Poll::Ready(Err(WaitError::HasChannel)) };
        loop {
            if let Some(ready) = self.take().transpose() {
                self.place = None;
                return Poll::Ready(ready);
            }
            self.place.get_or_insert_with(|| Place::new(waiters)).register(cx.waker());
            if self.cq.arm_own() {
                continue;
            }
            let advanced = self.cq.inner.device.inner.node.advance_task();
            if let Some(ready) = self.take().transpose() {
                self.place = None;
                return Poll::Ready(ready);
            }
            return match advanced {
                Err(stalled) => Poll::Ready(Err(stalled.into())),
                Ok(advance) => {
                    if advance == Advance::Moved {
                        // Other tasks' turn, then the next step.
                        cx.waker().wake_by_ref();
                    }
                    Poll::Pending
                }
            };
        }
    }
}
