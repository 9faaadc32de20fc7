//! Shared receive queues, which supply receives for the messages of many queue pairs.

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
///
/// A message takes the oldest receive, whichever queue pair it arrives at. Its completion is in the
/// completion queue of that queue pair. The completion has the queue pair's number in
/// [`qp_num`](crate::Completion::qp_num) and the `wr_id` of the receive, which identifies the
/// buffer. If the queue is empty, a reliable peer waits and retries, as it does with a queue pair's
/// own receive queue.
///
/// Cloning is cheap. The queue is destroyed when the last clone and the last queue pair that uses
/// it are dropped.
///
/// ```
/// use urxe::sim::Fabric;
/// use urxe::{Access, ConnectOptions, RecvRequest, SendRequest, SharedReceiveQueue};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fabric = Fabric::new(1);
/// let server = fabric.device([10, 0, 0, 1])?;
/// let (pd, cq) = (server.alloc_pd()?, server.create_cq(64)?);
/// let buffers = pd.allocate(8 * 64, Access::LOCAL_WRITE)?;
/// let srq: SharedReceiveQueue = pd.shared_receive_queue(8).create()?;
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
///     let _sent = client_cq.wait_one(None)?;
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
    /// Of an XRC shared receive queue: its domain, and the completion queue of its receives.
    xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pd
            .device()
            .destroy("queue pairs keep it", |core| core.destroy_srq_without_wait(&self.srq));
    }
}

/// The options of a new shared receive queue, made by [`ProtectionDomain::shared_receive_queue`].
///
/// ```
/// use urxe::{CreateSrqError, ModifySrqError, OutOfMemory, SrqAttr, SrqBuilder, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// let pd = device.alloc_pd()?;
/// let builder: SrqBuilder = pd.shared_receive_queue(64).max_sge(2).limit(8);
/// let srq = builder.create()?;
/// assert_eq!(srq.query(), SrqAttr { max_wr: 64, max_sge: 2, srq_limit: 8 });
/// let error: ModifySrqError = srq.arm_limit(65).unwrap_err();
/// assert_eq!(error, ModifySrqError::Limit { given: 65, max_wr: 64 });
/// let error: CreateSrqError = pd.shared_receive_queue(0).create().unwrap_err();
/// assert!(matches!(error, CreateSrqError::Size(_)), "{error}");
/// // If the system has no memory for so many receives, the error has the number ENOMEM.
/// assert_eq!(CreateSrqError::from(OutOfMemory::of::<u8>(1 << 40)).errno(), 12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SrqBuilder {
    pd: ProtectionDomain,
    attr: SrqAttr,
    xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl ProtectionDomain {
    /// Returns the builder of a shared receive queue for `max_wr` receives of up to 4
    /// scatter-gather entries each. The memory of the receives must belong to this protection
    /// domain. The queue pairs may belong to others.
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
    /// Sets the number of scatter-gather entries of a receive. The default is 4.
    #[must_use]
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.attr.max_sge = entries;
        self
    }

    /// Sets the limit: when fewer receives are left, the device reports an event once. See
    /// [`SharedReceiveQueue::arm_limit`]. The default, 0, reports none.
    #[must_use]
    pub fn limit(mut self, receives: u32) -> Self {
        self.attr.srq_limit = receives;
        self
    }

    /// Makes the queue part of an XRC domain, for messages that arrive at a
    /// [target](crate::XrcTarget) of the domain. Their completions are in `cq`. Peers name the
    /// queue by its [`id`](SharedReceiveQueue::id).
    #[must_use]
    pub fn xrc(mut self, domain: &XrcDomain, cq: &CompletionQueue) -> Self {
        self.xrc = Some((domain.clone(), cq.clone()));
        self
    }

    /// Creates the queue (`ibv_create_srq`, `ibv_create_srq_ex`).
    ///
    /// # Errors
    /// Fails with [`CreateSrqError`], which names the given value and the values that the device
    /// allows.
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

    /// Returns the protection domain of the queue.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Returns the number of the queue in its device (`ibv_get_srq_num`). Events name the queue by
    /// this number, and so do peers if the queue belongs to an XRC domain.
    #[must_use]
    pub fn id(&self) -> SrqId {
        self.inner.srq.id()
    }

    /// Returns the XRC domain of the queue, if it has one.
    #[must_use]
    pub fn domain(&self) -> Option<&XrcDomain> {
        self.inner.xrc.as_ref().map(|(domain, _)| domain)
    }

    /// Returns the capacities and the armed limit (`ibv_query_srq`).
    #[must_use]
    pub fn query(&self) -> SrqAttr {
        self.inner.srq.query()
    }

    /// Returns the number of receives in the queue.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.inner.srq.len()
    }

    /// Returns whether the queue has no receive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.srq.is_empty()
    }

    /// Posts one receive (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// Fails with [`PostError`]. The request is not posted then.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let request = request.core_on(self.pd().device())?;
        self.inner.srq.post(&[request]).map_err(|(_, error)| error)
    }

    /// Posts several receives, in order.
    ///
    /// # Errors
    /// Fails with [`BatchError`], which names the first refused request. All earlier requests were
    /// posted.
    pub fn post_recv_batch(&self, requests: &[RecvRequest<'_>]) -> Result<(), BatchError> {
        post_recv_batch(self.pd().device(), requests, |requests| self.inner.srq.post(requests))
    }

    /// Arms the limit. When a message leaves fewer than `limit` receives, the device reports
    /// [`SrqLimitReached`](crate::AsyncEventType::SrqLimitReached) once and sets the limit to 0. A
    /// limit of 0 disarms it.
    ///
    /// # Errors
    /// Fails with [`ModifySrqError`] if the limit exceeds the capacity of the queue.
    pub fn arm_limit(&self, limit: u32) -> Result<(), ModifySrqError> {
        self.inner
            .srq
            .modify(&SrqAttr { srq_limit: limit, ..SrqAttr::default() }, SrqAttrMask::LIMIT)
    }

    /// Changes the capacity to `max_wr` receives. The posted receives stay in the queue.
    ///
    /// # Errors
    /// Fails with [`ModifySrqError`] if the capacity is 0, exceeds the limit of the device, or is
    /// less than the number of posted receives or the armed limit. The queue is unchanged then.
    pub fn resize(&self, max_wr: u32) -> Result<(), ModifySrqError> {
        self.inner.srq.modify(&SrqAttr { max_wr, ..SrqAttr::default() }, SrqAttrMask::MAX_WR)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut queue = f.debug_struct("SharedReceiveQueue");
        queue.field("id", &self.id().0).field("len", &self.len()).finish_non_exhaustive()
    }
}
