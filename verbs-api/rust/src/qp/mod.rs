//! Queue pairs: made by [`ProtectionDomain::queue_pair`](crate::ProtectionDomain::queue_pair),
//! connected by [`QueuePair::connect`], then posted to.
//!
//! A queue pair's state is looked at when a call is made, not kept in its type: a peer's packet, or
//! its silence, may put it into ERR at any time, so a type could not tell the truth. A call that
//! the state does not allow says which state it is in and which it needs.

mod builder;
mod connect;
mod datagram;
mod drain;
mod request;

use urxe_stack::device::{ModifyError, QpHandle};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::work_request::{PostError, RecvRequest as CoreRecv, SendRequest as CoreSend};
use urxe_wire::Psn;

pub(crate) use self::builder::DEFAULT_CAP;
pub use self::builder::QueuePairBuilder;
pub use self::connect::ConnectOptions;
pub(crate) use self::connect::{End, end_calls};
pub use self::request::{Data, Gather, RecvRequest, SendRequest};

use crate::cq::CompletionQueue;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;

/// Requests of a batch that are handed to the device in one call.
const BATCH: usize = 16;

/// Why a batch of work requests was not taken whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {index}: {error}")]
pub struct BatchError {
    /// The first request that was refused, counted from 0; those before it were posted.
    pub index: usize,
    /// Why.
    #[source]
    pub error: PostError,
}

impl BatchError {
    /// The errno that `ibv_post_send` and `ibv_post_recv` return.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.error.errno()
    }
}

/// A queue pair (`struct ibv_qp`). Not `Clone`: wrap it in an [`Arc`](std::sync::Arc) to share it;
/// all calls take `&self`. Dropping it destroys it: its outstanding work completes nowhere, what
/// has completed stays in the completion queues, and it leaves its multicast groups.
pub struct QueuePair {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    handle: QpHandle,
    qp_type: QpType,
    psn: Psn,
    sgid_index: u8,
}

impl QueuePair {
    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Where its sends complete.
    #[must_use]
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.send_cq
    }

    /// Where its receives complete.
    #[must_use]
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.recv_cq
    }

    /// Its service.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    fn end(&self) -> End<'_> {
        let Self { handle, qp_type, psn, sgid_index, .. } = *self;
        End { device: self.pd.device(), handle, qp_type, psn, sgid_index }
    }

    /// The shared receive queue that its messages take from, if it was made with one.
    #[must_use]
    pub fn shared_receive_queue(&self) -> Option<&SharedReceiveQueue> {
        self.srq.as_ref()
    }

    /// The same, without calling whom that woke.
    pub(crate) fn modify_without_wake(
        &self,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        self.pd.device().inner.backend.modify_qp(self.handle, attr, mask)
    }

    /// Puts it into the error state: all outstanding work completes with `WrFlushErr`.
    ///
    /// # Errors
    /// [`ModifyError`]: from RESET there is no way to ERR.
    pub fn set_error(&self) -> Result<(), ModifyError> {
        self.modify(&QpAttr { qp_state: QpState::Err, ..QpAttr::default() }, QpAttrMask::STATE)
    }

    /// Puts it back into RESET, from where it can be connected anew. Outstanding work completes
    /// nowhere.
    ///
    /// # Errors
    /// [`ModifyError`].
    pub fn reset(&self) -> Result<(), ModifyError> {
        self.modify(&QpAttr { qp_state: QpState::Reset, ..QpAttr::default() }, QpAttrMask::STATE)
    }

    /// Posts one send work request, and sends on this thread what can be sent (`ibv_post_send`).
    ///
    /// What becomes of it tells its completion, if it is [signaled](SendRequest::signaled), or the
    /// queue pair was made with [`signal_all`](QueuePairBuilder::signal_all), or it fails.
    ///
    /// # Errors
    /// [`PostError`]: nothing was posted.
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let device = self.pd.device();
        request.check_device(device)?;
        let result = device.inner.backend.post_send(self.handle, &[request.as_core()]);
        device.run_ready_wakers();
        result.map_err(|(_, error)| error)
    }

    /// Posts several, in order; cheaper than one by one, since their packets share system calls.
    ///
    /// # Errors
    /// [`BatchError`]: those before the one it names were posted.
    pub fn post_send_batch(&self, requests: &[SendRequest<'_>]) -> Result<(), BatchError> {
        let device = self.pd.device();
        let empty = SendRequest::EMPTY;
        let result = requests.chunks(BATCH).enumerate().try_for_each(|(chunk, requests)| {
            let mut core: [CoreSend<'_>; BATCH] = [empty.as_core(); BATCH];
            let mut count = 0;
            let mut foreign = Ok(());
            for (place, request) in core.iter_mut().zip(requests) {
                foreign = request.check_device(device).map_err(|error| (count, error));
                if foreign.is_err() {
                    break;
                }
                *place = request.as_core();
                count += 1;
            }
            let posted = device.inner.backend.post_send(self.handle, &core[..count]);
            posted
                .and(foreign)
                .map_err(|(index, error)| BatchError { index: chunk * BATCH + index, error })
        });
        device.run_ready_wakers();
        result
    }

    /// Posts one receive work request (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`PostError`]: nothing was posted.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let device = self.pd.device();
        let result = device.inner.backend.post_recv(self.handle, &[request.as_core()]);
        device.run_ready_wakers();
        result.map_err(|(_, error)| error)
    }

    /// Posts several, in order.
    ///
    /// # Errors
    /// [`BatchError`]: those before the one it names were posted.
    pub fn post_recv_batch(&self, requests: &[RecvRequest<'_>]) -> Result<(), BatchError> {
        let device = self.pd.device();
        let result = post_recv_batch(requests, |requests| {
            device.inner.backend.post_recv(self.handle, requests)
        });
        device.run_ready_wakers();
        result
    }
}

/// Hands `requests` to `post` in parts, in order.
pub(crate) fn post_recv_batch(
    requests: &[RecvRequest<'_>],
    post: impl Fn(&[CoreRecv<'_>]) -> Result<(), (usize, PostError)>,
) -> Result<(), BatchError> {
    requests.chunks(BATCH).enumerate().try_for_each(|(chunk, requests)| {
        let mut core: [CoreRecv<'_>; BATCH] = [CoreRecv { wr_id: 0, sges: &[] }; BATCH];
        for (place, request) in core.iter_mut().zip(requests) {
            *place = request.as_core();
        }
        let posted = post(&core[..requests.len()]);
        posted.map_err(|(index, error)| BatchError { index: chunk * BATCH + index, error })
    })
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.end().destroy("only its handle destroys it");
        if !self.pd.device().inner.backend.is_inherited() {
            // Its windows are unbound.
            self.pd.deregister_orphans();
        }
    }
}

end_calls!(QueuePair);
