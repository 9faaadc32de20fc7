//! The builder of queue pairs.

use std::sync::Arc;

use urxe_stack::device::CreateQpError;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpCap, QpType};

use super::QueuePair;
use crate::cq::CompletionQueue;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;

/// The capacities of a queue pair, unless the program sets others.
pub(crate) const DEFAULT_CAP: QpCap = QpCap {
    max_send_wr: 128,
    max_recv_wr: 128,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 64,
};

/// The options of a new queue pair, made by [`ProtectionDomain::queue_pair`].
///
/// By default, the queue pair is a reliable connection with one completion queue, 128 sends and 128
/// receives of 4 scatter-gather entries each, and 64 bytes of inline data.
///
/// ```
/// use urxe::{QpCap, QpType, QueuePairBuilder, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// let pd = device.alloc_pd()?;
/// let (send_cq, recv_cq) = (device.create_cq(512)?, device.create_cq(64)?);
/// let builder: QueuePairBuilder = pd
///     .queue_pair(&send_cq)
///     .recv_cq(&recv_cq)
///     .qp_type(QpType::Uc)
///     .max_send_wr(512)
///     .signal_all(true);
/// let qp = builder.create()?;
/// let cap: QpCap = qp.query().cap;
/// assert!(cap.max_send_wr >= 512);
/// assert_eq!(qp.recv_cq().id(), recv_cq.id());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct QueuePairBuilder {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    qp_type: QpType,
    cap: QpCap,
    sq_sig_all: bool,
    sgid_index: Option<u8>,
}

impl ProtectionDomain {
    /// Returns the builder of a queue pair whose sends and receives complete in `cq`.
    #[must_use]
    pub fn queue_pair(&self, cq: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder {
            pd: self.clone(),
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            qp_type: QpType::Rc,
            cap: DEFAULT_CAP,
            sq_sig_all: false,
            sgid_index: None,
        }
    }
}

impl QueuePairBuilder {
    /// Sets the transport service.
    ///
    /// * [`QpType::Rc`], the default, and [`QpType::Uc`] are connections: see
    ///   [`QueuePair::connect`].
    /// * [`QpType::Ud`] sends datagrams: see [`QueuePair::start_datagrams`].
    /// * [`QpType::XrcSend`] is the sending end of an XRC connection. The receiving end is an
    ///   [`XrcTarget`](crate::XrcTarget).
    /// * [`QpType::Gsi`] is queue pair 1, which is reserved for `cm`.
    #[must_use]
    pub fn qp_type(mut self, qp_type: QpType) -> Self {
        self.qp_type = qp_type;
        self
    }

    /// Sets the completion queue of receives.
    #[must_use]
    pub fn recv_cq(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = cq.clone();
        self
    }

    /// Takes the receives from `srq` instead of a receive queue of its own. The capacities of the
    /// own receive queue are then 0.
    #[must_use]
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Sets the number of outstanding sends.
    #[must_use]
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Sets the number of outstanding receives.
    #[must_use]
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.cap.max_recv_wr = requests;
        self
    }

    /// Sets the number of scatter-gather entries of a send.
    #[must_use]
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.cap.max_send_sge = entries;
        self
    }

    /// Sets the number of scatter-gather entries of a receive.
    #[must_use]
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.cap.max_recv_sge = entries;
        self
    }

    /// Sets the number of bytes of inline data of a send.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Sets all capacities at once.
    #[must_use]
    pub fn cap(mut self, cap: QpCap) -> Self {
        self.cap = cap;
        self
    }

    /// Sets whether every send creates a completion, signaled or not (`sq_sig_all`). The default is
    /// `false`.
    #[must_use]
    pub fn signal_all(mut self, all: bool) -> Self {
        self.sq_sig_all = all;
        self
    }

    /// Sets the index of the GID that the queue pair sends from. The default is
    /// [`Device::default_gid_index`](crate::Device::default_gid_index).
    #[must_use]
    pub fn sgid_index(mut self, index: u8) -> Self {
        self.sgid_index = Some(index);
        self
    }

    /// Creates the queue pair, in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// Fails with [`CreateQpError`], which names the given value and the values that the device
    /// allows.
    pub fn create(self) -> Result<QueuePair, CreateQpError> {
        if self.qp_type == QpType::Gsi {
            // The device would deliver all management datagrams to this queue pair and none to
            // rdma_cm.
            return Err(CreateQpError::GsiReserved);
        }
        let device = self.pd.device();
        for cq in [&self.send_cq, &self.recv_cq] {
            if !cq.device().is_same(device) {
                return Err(CreateQpError::NoCq { given: cq.id() });
            }
        }
        let core = device.core();
        let handle = core.create_qp(&QpInit {
            qp_type: self.qp_type,
            pd: self.pd.id(),
            send_cq: Arc::clone(self.send_cq.core()),
            recv_cq: Arc::clone(self.recv_cq.core()),
            srq: self.srq.as_ref().map(|srq| Arc::clone(srq.core())),
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
        })?;
        let sgid_index = self.sgid_index.unwrap_or_else(|| device.default_gid_index());
        let psn = core.random_psn();
        let Self { pd, send_cq, recv_cq, srq, qp_type, .. } = self;
        Ok(QueuePair { pd, send_cq, recv_cq, srq, handle, qp_type, psn, sgid_index })
    }
}
