//! Queue pairs.
//!
//! [`ProtectionDomain::queue_pair`](crate::ProtectionDomain::queue_pair) makes a queue pair,
//! [`QueuePair::connect`] connects it, and work requests are then posted to it.
//!
//! The state of a queue pair is checked by each call and not part of its type. A packet of the
//! peer, or missing packets, may move the queue pair to ERR at any time, so a type could not
//! represent the state. A call that fails because of the state reports the present and the required
//! state.

mod builder;
mod connect;
#[cfg(feature = "cm")]
mod connection;
mod datagram;
mod drain;
mod request;
mod signaled;

use urxe_stack::device::{ModifyError, QpHandle};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::work_request::{PostError, RecvRequest as CoreRecv};
use urxe_wire::Psn;

pub(crate) use self::builder::DEFAULT_CAP;
pub use self::builder::QueuePairBuilder;
pub use self::connect::ConnectOptions;
pub(crate) use self::connect::{End, end_calls};
pub use self::request::{Data, Gather, RecvRequest, SendRequest};
pub(crate) use self::signaled::SignaledRequest;

use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;

/// The number of work requests of a batch that are passed to the device in one call.
const BATCH: usize = 16;

/// The reason why the device did not accept all work requests of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {index}: {error}")]
#[non_exhaustive]
pub struct BatchError {
    /// The index of the first refused request, counted from 0. All earlier requests were posted.
    pub index: usize,
    /// The reason for the refusal.
    #[source]
    pub error: PostError,
}

impl BatchError {
    /// Returns the errno that `ibv_post_send` and `ibv_post_recv` return.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.error.errno()
    }
}

/// A queue pair (`struct ibv_qp`).
///
/// All methods take `&self`, so threads can share a queue pair in an [`Arc`](std::sync::Arc).
/// Dropping the queue pair destroys it: outstanding work creates no completions, existing
/// completions stay in the completion queues, and the queue pair leaves its multicast groups.
///
/// ```
/// use urxe::{Data, QpState, QueuePair, RecvRequest, SendRequest, WaitError, WcStatus};
/// # use urxe::ConnectOptions;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = urxe::sim::Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// let inbox = peer_pd.allocate(64, urxe::Access::LOCAL_WRITE)?;
/// peer.post_recv(&RecvRequest::new(inbox.slice(..)?))?;
/// qp.post_send(&SendRequest::send(Data::inline(b"hello")).signaled())?;
/// let _sent = cq.wait_one(None)?;
/// assert_eq!(peer_cq.wait_one(None)?.byte_len, 5);
/// // In the error state, outstanding receives are flushed.
/// peer.post_recv(&RecvRequest::new(inbox.slice(..)?))?;
/// peer.set_error()?;
/// let Err(WaitError::Failed(error)) = peer_cq.wait_one(None) else { panic!("it is flushed") };
/// assert_eq!(error.status, WcStatus::WrFlushErr);
/// peer.reset()?;
/// assert_eq!(peer.state(), QpState::Reset);
/// # Ok(())
/// # }
/// ```
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
    /// Returns the protection domain of the queue pair.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the completion queue of sends.
    #[must_use]
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.send_cq
    }

    /// Returns the completion queue of receives.
    #[must_use]
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.recv_cq
    }

    /// Returns the transport service.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    fn end(&self) -> End<'_> {
        let Self { handle, qp_type, psn, sgid_index, .. } = *self;
        End { device: self.pd.device(), handle, qp_type, psn, sgid_index }
    }

    /// Returns the shared receive queue, if the queue pair was created with one.
    #[must_use]
    pub fn shared_receive_queue(&self) -> Option<&SharedReceiveQueue> {
        self.srq.as_ref()
    }

    /// Moves the queue pair to the error state. All outstanding work completes with `WrFlushErr`.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is RESET.
    pub fn set_error(&self) -> Result<(), ModifyError> {
        self.modify(&QpAttr { qp_state: QpState::Err, ..QpAttr::default() }, QpAttrMask::STATE)
    }

    /// Moves the queue pair back to RESET, from where it can be connected again. Outstanding work
    /// creates no completions.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the device cannot change the queue pair.
    pub fn reset(&self) -> Result<(), ModifyError> {
        self.modify(&QpAttr { qp_state: QpState::Reset, ..QpAttr::default() }, QpAttrMask::STATE)
    }

    /// Posts one send work request (`ibv_post_send`). This thread also sends the packets that the
    /// congestion window allows.
    ///
    /// The request creates a completion if it is [signaled](SendRequest::signaled), if the queue
    /// pair was created with [`signal_all`](QueuePairBuilder::signal_all), or if the request fails.
    ///
    /// # Errors
    /// Fails with [`PostError`]. The request is not posted then.
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let device = self.pd.device();
        let request = request.core_on(device)?;
        let result = device.inner.backend.post_send(self.handle, &[request]);
        device.run_ready_wakers();
        result.map_err(|(_, error)| error)
    }

    /// Posts up to `N` requests to the peer, in order. Fails with the index of the first that is
    /// refused; all earlier ones were posted.
    pub(crate) fn post_signaled<const N: usize>(
        &self,
        requests: &[SignaledRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        let device = self.pd.device();
        let posted = post_chunk::<_, _, N>(
            requests,
            SignaledRequest::EMPTY.as_core(),
            |request| request.core_on(device),
            |requests| device.inner.backend.post_send(self.handle, requests),
        );
        device.run_ready_wakers();
        posted
    }

    /// Posts several send work requests, in order. A batch is cheaper than single posts, because
    /// its packets share system calls.
    ///
    /// ```
    /// use urxe::{BatchError, Data, PostError, SendRequest, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// let qp = pd.queue_pair(&cq).create()?;
    /// // The queue pair is not connected yet.
    /// let requests = [SendRequest::send(Data::EMPTY), SendRequest::send(Data::EMPTY)];
    /// let refused: BatchError = qp.post_send_batch(&requests).unwrap_err();
    /// assert_eq!(refused.index, 0);
    /// assert!(matches!(refused.error, PostError::State { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`BatchError`], which names the first refused request. All earlier requests were
    /// posted.
    pub fn post_send_batch(&self, requests: &[SendRequest<'_>]) -> Result<(), BatchError> {
        let device = self.pd.device();
        let empty = SendRequest::EMPTY;
        let result = post_batch(
            requests,
            empty.as_core(),
            |request| request.core_on(device),
            |requests| device.inner.backend.post_send(self.handle, requests),
        );
        device.run_ready_wakers();
        result
    }

    /// Posts one receive work request (`ibv_post_recv`).
    ///
    /// # Errors
    /// Fails with [`PostError`]. The request is not posted then.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let device = self.pd.device();
        let request = request.core_on(device)?;
        let result = device.inner.backend.post_recv(self.handle, &[request]);
        device.run_ready_wakers();
        result.map_err(|(_, error)| error)
    }

    /// Posts several receive work requests, in order.
    ///
    /// # Errors
    /// Fails with [`BatchError`], which names the first refused request. All earlier requests were
    /// posted.
    pub fn post_recv_batch(&self, requests: &[RecvRequest<'_>]) -> Result<(), BatchError> {
        let device = self.pd.device();
        let result = post_recv_batch(device, requests, |requests| {
            device.inner.backend.post_recv(self.handle, requests)
        });
        device.run_ready_wakers();
        result
    }
}

/// Passes `requests` to `post`, which posts them on `device`, in chunks of [`BATCH`], in order.
pub(crate) fn post_recv_batch(
    device: &Device,
    requests: &[RecvRequest<'_>],
    post: impl Fn(&[CoreRecv<'_>]) -> Result<(), (usize, PostError)>,
) -> Result<(), BatchError> {
    let empty = CoreRecv { wr_id: 0, sges: &[] };
    post_batch(requests, empty, |request| request.core_on(device), post)
}

/// Passes `requests` to `post` in chunks of [`BATCH`], in order.
fn post_batch<'a, R, C: Copy>(
    requests: &'a [R],
    empty: C,
    core_of: impl Fn(&'a R) -> Result<C, PostError>,
    post: impl Fn(&[C]) -> Result<(), (usize, PostError)>,
) -> Result<(), BatchError> {
    requests.chunks(BATCH).enumerate().try_for_each(|(chunk, requests)| {
        post_chunk::<_, _, BATCH>(requests, empty, &core_of, &post)
            .map_err(|(index, error)| BatchError { index: chunk * BATCH + index, error })
    })
}

/// Passes up to `N` requests to `post` in the form of the device, which `core_of` returns. Fails
/// with the index of the first that `core_of` or `post` refuses; all earlier ones were posted.
fn post_chunk<'a, R, C: Copy, const N: usize>(
    requests: &'a [R],
    empty: C,
    core_of: impl Fn(&'a R) -> Result<C, PostError>,
    post: impl Fn(&[C]) -> Result<(), (usize, PostError)>,
) -> Result<(), (usize, PostError)> {
    debug_assert!(requests.len() <= N);
    let mut core = [empty; N];
    let (mut count, mut refused) = (0, Ok(()));
    for (place, request) in core.iter_mut().zip(requests) {
        match core_of(request) {
            Ok(request) => *place = request,
            Err(error) => {
                refused = Err((count, error));
                break;
            }
        }
        count += 1;
    }
    post(&core[..count]).and(refused)
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.end().destroy("only its handle destroys it");
        if !self.pd.device().inner.backend.is_inherited() {
            // The device unbound the windows of the queue pair.
            self.pd.deregister_orphans();
        }
    }
}

end_calls!(QueuePair);
