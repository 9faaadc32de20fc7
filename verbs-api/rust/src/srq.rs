//! Shared receive queues: receives that the messages of many queue pairs take from.

use std::fmt;
use std::sync::Arc;

use urxe_stack::cq::SrqId;
use urxe_stack::qp::work_request::PostError;
use urxe_stack::srq::error::{CreateSrqError, ModifySrqError};
use urxe_stack::srq::{Srq, SrqAttr, SrqAttrMask, SrqInit, XrcSrqInit};

use crate::cq::CompletionQueue;
use crate::pd::ProtectionDomain;
use crate::qp::{BatchError, RecvRequest, post_recv_batch};
use crate::xrc::XrcDomain;

/// A shared receive queue (`struct ibv_srq`), made by [`ProtectionDomain::shared_receive_queue`].
/// Cheap to clone; it ends when the last clone and the last queue pair that takes from it are gone.
///
/// A message takes the oldest receive, whichever queue pair it comes through; the completion is in
/// that queue pair's completion queue, with its number in [`qp_num`](crate::Completion::qp_num) and
/// the receive's `wr_id`, by which the program knows the buffer. When a message finds none, a
/// reliable peer waits as it does without a receive of the queue pair's own.
///
/// ```
/// use urxe::sim::Fabric;
/// use urxe::{Access, ConnectOptions, RecvRequest, SendRequest};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fabric = Fabric::new(1);
/// let server = fabric.device([10, 0, 0, 1])?;
/// let (pd, cq) = (server.alloc_pd()?, server.create_cq(64)?);
/// let buffers = pd.allocate(8 * 64, Access::LOCAL_WRITE)?;
/// let srq = pd.shared_receive_queue(8).create()?;
/// for nr in 0..8 {
///     srq.post_recv(&RecvRequest::new(buffers.slice(nr * 64..(nr + 1) * 64)?).wr_id(nr as u64))?;
/// }
/// for host in 2..5 {
///     let client = fabric.device([10, 0, 0, host])?;
///     let (client_pd, client_cq) = (client.alloc_pd()?, client.create_cq(4)?);
///     let from = client_pd.queue_pair(&client_cq).create()?;
///     let to = pd.queue_pair(&cq).shared_receive_queue(&srq).create()?;
///     from.connect(&to.endpoint(), &ConnectOptions::default())?;
///     to.connect(&from.endpoint(), &ConnectOptions::default())?;
///     let request = SendRequest::send(urxe::Data::inline(b"hello"));
///     from.post_send(&request.signaled())?;
///     let received = cq.wait_one(None)?;
///     assert_eq!(received.qp_num, to.qpn());
///     let at = received.wr_id as usize * 64;
///     assert_eq!(buffers.read_vec(at, 5)?, b"hello");
///     assert!(client_cq.wait_one(None)?.status.is_success());
/// }
/// assert_eq!(srq.len(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

struct Inner {
    pd: ProtectionDomain,
    srq: Arc<Srq>,
    /// Where receives complete, and the domain: of XRC only.
    xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pd
            .device()
            .destroy("queue pairs keep it", |core| core.destroy_srq_without_wait(&self.srq));
    }
}

/// What a shared receive queue shall be; made by [`ProtectionDomain::shared_receive_queue`].
#[derive(Clone, Debug)]
pub struct SrqBuilder {
    pd: ProtectionDomain,
    attr: SrqAttr,
    xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl ProtectionDomain {
    /// Begins a shared receive queue for `max_wr` receives of up to 4 pieces each. Their memory is
    /// of this protection domain, whichever the queue pairs' is.
    #[must_use]
    pub fn shared_receive_queue(&self, max_wr: u32) -> SrqBuilder {
        SrqBuilder {
            pd: self.clone(),
            attr: SrqAttr { max_wr, max_sge: 4, srq_limit: 0 },
            xrc: None,
        }
    }
}

impl SrqBuilder {
    /// Scatter-gather entries of a receive. By default 4.
    #[must_use]
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.attr.max_sge = entries;
        self
    }

    /// Below so many receives an event tells it, once; see [`SharedReceiveQueue::arm_limit`]. By
    /// default never.
    #[must_use]
    pub fn limit(mut self, receives: u32) -> Self {
        self.attr.srq_limit = receives;
        self
    }

    /// Makes it one of an XRC domain, for messages that come through the domain's
    /// [targets](crate::XrcTarget); they complete in `cq`. Peers name it by its
    /// [`id`](SharedReceiveQueue::id).
    #[must_use]
    pub fn xrc(mut self, domain: &XrcDomain, cq: &CompletionQueue) -> Self {
        self.xrc = Some((domain.clone(), cq.clone()));
        self
    }

    /// Makes it (`ibv_create_srq`, `ibv_create_srq_ex`).
    ///
    /// # Errors
    /// [`CreateSrqError`]: what was asked for and what the device allows.
    pub fn create(self) -> Result<SharedReceiveQueue, CreateSrqError> {
        let device = self.pd.device();
        if let Some((_, cq)) = self.xrc.as_ref().filter(|(_, cq)| !cq.device().is_same(device)) {
            return Err(CreateSrqError::OtherCq { given: cq.id() });
        }
        let xrc = self.xrc.as_ref().map(|(domain, cq)| XrcSrqInit {
            xrcd: Arc::clone(domain.core()),
            cq: Arc::clone(cq.core()),
        });
        let srq = device.core().create_srq(&SrqInit {
            pd: self.pd.id(),
            attr: self.attr,
            xrc,
            context: 0,
        })?;
        Ok(SharedReceiveQueue { inner: Arc::new(Inner { pd: self.pd, srq, xrc: self.xrc }) })
    }
}

impl SharedReceiveQueue {
    pub(crate) fn core(&self) -> &Arc<Srq> {
        &self.inner.srq
    }

    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Its number within its device, by which events name it, and peers if it is of an XRC domain
    /// (`ibv_get_srq_num`).
    #[must_use]
    pub fn id(&self) -> SrqId {
        self.inner.srq.id()
    }

    /// Its XRC domain, if it is of one.
    #[must_use]
    pub fn domain(&self) -> Option<&XrcDomain> {
        self.inner.xrc.as_ref().map(|(domain, _)| domain)
    }

    /// Its sizes, and the limit that is armed now (`ibv_query_srq`).
    #[must_use]
    pub fn query(&self) -> SrqAttr {
        self.inner.srq.query()
    }

    /// How many receives are posted and not taken.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.inner.srq.len()
    }

    /// Whether no receive is left to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.srq.is_empty()
    }

    /// Posts one receive (`ibv_post_srq_recv`). From any thread.
    ///
    /// # Errors
    /// [`PostError`]: nothing was posted.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.inner.srq.post(&[request.as_core()]).map_err(|(_, error)| error)
    }

    /// Posts several, in order.
    ///
    /// # Errors
    /// [`BatchError`]: those before the one it names were posted.
    pub fn post_recv_batch(&self, requests: &[RecvRequest<'_>]) -> Result<(), BatchError> {
        post_recv_batch(requests, |requests| self.inner.srq.post(requests))
    }

    /// Arms the limit: when a message leaves fewer than `limit` receives, the device reports
    /// [`SrqLimitReached`](crate::AsyncEventType::SrqLimitReached) once, and the limit is 0 again.
    /// 0 disarms it.
    ///
    /// # Errors
    /// [`ModifySrqError`]: more than the queue has room for.
    pub fn arm_limit(&self, limit: u32) -> Result<(), ModifySrqError> {
        self.inner
            .srq
            .modify(&SrqAttr { srq_limit: limit, ..SrqAttr::default() }, SrqAttrMask::LIMIT)
    }

    /// Gives it room for `max_wr` receives. What it holds stays.
    ///
    /// # Errors
    /// [`ModifySrqError`]: 0, more than the device allows, less than it holds or than the limit. It
    /// is then as before.
    pub fn resize(&self, max_wr: u32) -> Result<(), ModifySrqError> {
        self.inner.srq.modify(&SrqAttr { max_wr, ..SrqAttr::default() }, SrqAttrMask::MAX_WR)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.srq.fmt(f)
    }
}
