//! Stopping and resuming a send queue: SQD (send queue drain) and SQE (send queue error).
//!
//! ```text
//!        drain_send_queue            the started sends are complete
//!   RTS ─────────────────> SQD ───────────────────────────────> SQD, drained (event SqDrained)
//!    ^                      └─────────────┬──────────────────────┘
//!    └──────── resume_send_queue ─────────┤
//!                          SQE ───────────┘   (UC and UD: a send failed, later sends are flushed)
//! ```
//!
//! Receiving continues in all of these states. Source: IBTA vol. 1, 10.3.1.5 and 10.3.1.6.

use urxe_stack::device::ModifyError;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};

use super::QueuePair;

impl QueuePair {
    /// Stops the send queue (RTS to SQD).
    ///
    /// The queue pair completes the sends that it has started. Later sends wait for
    /// [`resume_send_queue`](Self::resume_send_queue). When all started sends are complete, the
    /// device reports [`QpEventType::SqDrained`](crate::QpEventType), and
    /// [`is_drained`](Self::is_drained) returns true. The program may then [change](Self::modify)
    /// attributes that must not change while sends are in progress.
    ///
    /// ```
    /// use urxe::{AsyncEventType, Data, QpAttr, QpAttrMask, SendRequest};
    /// # use urxe::{ConnectOptions, QpState, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = Fabric::new(1);
    /// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
    /// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
    /// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
    /// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
    /// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// # let rights = urxe::Access::LOCAL_WRITE | urxe::Access::REMOTE_WRITE;
    /// # let theirs = peer_pd.allocate(64, rights)?;
    /// # let there = theirs.remote();
    /// qp.drain_send_queue()?;
    /// while a.events().wait(None)?.event_type() != AsyncEventType::SqDrained {}
    /// assert!(qp.is_drained());
    ///
    /// // No send is in progress: use a longer timeout from now on.
    /// qp.modify(&QpAttr { timeout: 18, ..QpAttr::default() }, QpAttrMask::TIMEOUT)?;
    /// qp.post_send(&SendRequest::write(Data::inline(b"later"), there).signaled())?;
    /// assert_eq!(cq.len(), 0);
    /// qp.resume_send_queue()?;
    /// let _written = cq.wait_one(None)?;
    /// # assert_eq!(qp.state(), QpState::Rts);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is not RTS.
    pub fn drain_send_queue(&self) -> Result<(), ModifyError> {
        let attr =
            QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
        self.modify(&attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY)
    }

    /// Returns whether the send queue is stopped and all started sends are complete.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let QpAttr { qp_state, sq_draining, .. } = self.query();
        qp_state == QpState::Sqd && !sq_draining
    }

    /// Resumes the send queue (to RTS).
    ///
    /// The queue pair must be in SQD after [`drain_send_queue`](Self::drain_send_queue), or in SQE.
    /// An unreliable connection or a datagram queue pair enters SQE when a send fails; later sends
    /// are flushed until it is resumed.
    ///
    /// ```
    /// use urxe::{Data, QKey, QpState, QpType, SendRequest, WaitError, WcStatus, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// # let another_pd = device.alloc_pd()?;
    /// # let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
    /// # qp.start_datagrams(QKey(1))?;
    /// # let ah = pd.address_handle(qp.endpoint().gid)?;
    /// # let send = |data| SendRequest::send(data).to(&ah, qp.qpn(), QKey(1)).signaled();
    /// let forbidden = another_pd.allocate(64, urxe::Access::empty())?;
    /// qp.post_send(&send(Data::from(forbidden.slice(..)?)))?;
    /// let Err(WaitError::Failed(error)) = cq.wait_one(None) else { panic!("it is forbidden") };
    /// assert_eq!(error.status, WcStatus::LocProtErr);
    /// assert_eq!(qp.state(), QpState::Sqe);
    ///
    /// qp.resume_send_queue()?;
    /// qp.post_send(&send(Data::inline(b"allowed")))?;
    /// let _sent = cq.wait_one(None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is none of RTS, SQD and SQE. In the error state,
    /// call [`reset`](Self::reset) instead.
    pub fn resume_send_queue(&self) -> Result<(), ModifyError> {
        self.modify(&QpAttr { qp_state: QpState::Rts, ..QpAttr::default() }, QpAttrMask::STATE)
    }
}
