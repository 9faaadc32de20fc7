//! The calls of a connection by [`cm`](crate::cm) to its queue pair.

use std::sync::Arc;

use urxe_stack::cq::Wake;
use urxe_stack::device::ModifyError;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask};
use urxe_stack::qp::send_watch::WatchedSends;

use super::QueuePair;

impl QueuePair {
    /// Calls `wake` when the sends that are posted now are complete or have failed, unless there
    /// are none.
    pub(crate) fn watch_sends(&self, wake: Arc<dyn Wake>) {
        let device = self.pd.device();
        device.core().watch_sends(self.handle, wake);
        // Requests that wait for others leave now.
        device.inner.backend.flush_deferred();
    }

    /// Returns the state of the sends that are watched.
    pub(crate) fn watched_sends(&self) -> WatchedSends {
        let watched = self.pd.device().core().watched_sends(self.handle);
        debug_assert!(watched.is_some(), "only its handle destroys a queue pair");
        watched.unwrap_or(WatchedSends::Failed)
    }

    /// Changes attributes like [`modify`](Self::modify), but does not call the wakers that became
    /// ready.
    pub(crate) fn modify_without_wake(
        &self,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        self.pd.device().inner.backend.modify_qp(self.handle, attr, mask)
    }
}
