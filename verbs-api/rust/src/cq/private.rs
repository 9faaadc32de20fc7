//! Completion queues that belong to one owner inside this crate. No program polls them.
//!
//! The event of such a queue calls the owner when the signalling thread holds no lock, as it calls
//! the wakers of tasks ([`waker_list`](crate::waker_list)).

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use urxe_stack::cq::{CompletionChannel as CoreChannel, Wake};
use urxe_stack::device::CreateCqError;

use super::{CompletionQueue, EventTarget};
use crate::device::Device;
use crate::waker_list::ReadyWakers;

type Handler = Box<dyn Fn() + Send + Sync>;

/// Calls the owner of a private queue.
pub(crate) struct OwnerWake {
    ready: Arc<ReadyWakers>,
    me: Weak<Self>,
    handler: OnceLock<Handler>,
}

impl CompletionQueue {
    /// Creates a queue whose events call [`on_private_event`](Self::on_private_event)'s handler.
    pub(crate) fn private(device: &Device, capacity: u32) -> Result<Self, CreateCqError> {
        let owner = Arc::new_cyclic(|me| OwnerWake {
            ready: Arc::clone(&device.inner.ready),
            me: me.clone(),
            handler: OnceLock::new(),
        });
        let channel = Arc::new(CoreChannel::new(Box::new(Arc::clone(&owner))));
        Self::new(device, capacity, channel, EventTarget::Owner(owner))
    }

    /// Sets the handler of the events of a private queue. It has no effect on other queues.
    pub(crate) fn on_private_event(&self, handler: Handler) {
        if let EventTarget::Owner(owner) = &self.inner.event_target {
            let is_first = owner.handler.set(handler).is_ok();
            debug_assert!(is_first, "a private queue has one owner");
        }
    }

    /// Discards the events of a private queue, because its handler was called.
    pub(crate) fn ack_private_events(&self) {
        self.discard_events();
    }
}

impl Wake for OwnerWake {
    fn wake(&self) {
        if let Some(me) = self.me.upgrade() {
            self.ready.push(Waker::from(me));
        }
    }
}

impl std::task::Wake for OwnerWake {
    fn wake(self: Arc<Self>) {
        if let Some(handler) = self.handler.get() {
            handler();
        }
    }
}

impl fmt::Debug for OwnerWake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerWake").finish_non_exhaustive()
    }
}
