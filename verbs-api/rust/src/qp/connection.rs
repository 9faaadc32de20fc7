//! The calls of a connection by [`cm`](crate::cm), and of a [`stream`](crate::stream), to the queue
//! pair.

use std::sync::Arc;

use urxe_stack::cq::Wake;
use urxe_stack::device::ModifyError;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask};
use urxe_stack::qp::send_watch::WatchedSends;
use urxe_stack::qp::work_request::{PostError, RecvRequest as CoreRecv, SendRequest as CoreSend};

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

    /// Lets the first request of the peer call `wake`, unless one has arrived.
    pub(crate) fn watch_peer(&self, wake: Arc<dyn Wake>) {
        self.pd.device().core().watch_peer(self.handle, wake);
    }

    /// Returns whether a request of the peer has arrived.
    pub(crate) fn is_peer_heard(&self) -> bool {
        self.pd.device().core().is_peer_heard(self.handle) == Some(true)
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

    /// Posts a send work request like [`post_send`](Self::post_send), but does not call the wakers
    /// that became ready. The memory must belong to the device of the queue pair.
    pub(crate) fn post_send_without_wake(&self, request: CoreSend<'_>) -> Result<(), PostError> {
        let posted = self.pd.device().inner.backend.post_send(self.handle, &[request]);
        posted.map_err(|(_, error)| error)
    }

    /// Posts receives like [`post_recv_batch`](Self::post_recv_batch), but does not call the wakers
    /// that became ready. The memory must belong to the device of the queue pair.
    pub(crate) fn post_recv_without_wake(
        &self,
        requests: &[CoreRecv<'_>],
    ) -> Result<(), PostError> {
        let posted = self.pd.device().inner.backend.post_recv(self.handle, requests);
        posted.map_err(|(_, error)| error)
    }
}
