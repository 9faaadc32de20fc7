//! Whom an engine tells what happens, beside its descriptors.

use super::eventfd::EventFd;
use crate::cq::Wake;
use crate::sync::Arc;

/// Whom an engine tells what happens, beside its descriptors: for callers that wait without one.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Woken like the descriptor of asynchronous events, under a lock of the core.
    pub events: Option<Arc<dyn Wake>>,
    /// Called by the background thread each time it has received and handled timeouts.
    pub after_progress: Option<Arc<dyn AfterProgress>>,
}

/// Acts on what was noted under locks. A [`Wake`] may not call back into the core; here it is
/// allowed.
pub trait AfterProgress: Send + Sync {
    /// Whether something was noted. Asked often, and under no lock.
    fn is_due(&self) -> bool;

    /// Acts on it, under no lock. It may drop the engine.
    fn act(&self);
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("events", &self.events.is_some())
            .field("after_progress", &self.after_progress.is_some())
            .finish()
    }
}

/// Wakes a descriptor and, if there is one, a hook.
pub struct EventWake {
    /// Counts the events.
    pub descriptor: Arc<EventFd>,
    /// Is told, but counts nothing.
    pub hook: Option<Arc<dyn Wake>>,
}

impl Wake for EventWake {
    fn wake(&self) {
        self.descriptor.wake();
        if let Some(hook) = &self.hook {
            hook.wake();
        }
    }

    fn withdraw(&self, events: u32) -> u32 {
        self.descriptor.withdraw(events)
    }
}
