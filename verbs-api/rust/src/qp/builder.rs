//! Making a queue pair.

use std::sync::Arc;

use urxe_stack::device::CreateQpError;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpCap, QpType};

use super::QueuePair;
use crate::cq::CompletionQueue;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;

/// The sizes that a queue pair has unless others are asked for.
pub(crate) const DEFAULT_CAP: QpCap = QpCap {
    max_send_wr: 128,
    max_recv_wr: 128,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 64,
};

/// What a queue pair shall be; made by [`ProtectionDomain::queue_pair`]. Without further ado: a
/// reliable connection with 128 sends, 128 receives, 4 scatter-gather entries each, 64 bytes of
/// inline data, one completion queue.
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
    /// Begins a queue pair whose sends and receives complete in `cq`.
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
    /// Its service. A connection, reliable ([`QpType::Rc`], the default) or not ([`QpType::Uc`]),
    /// is joined by [`QueuePair::connect`]; a datagram queue pair ([`QpType::Ud`]) begins with
    /// [`QueuePair::start_datagrams`]. The receiving end of an XRC connection is an
    /// [`XrcTarget`](crate::XrcTarget). Queue pair 1 ([`QpType::Gsi`]) is the system's, and
    /// [`cm`](crate::cm) shares it.
    #[must_use]
    pub fn qp_type(mut self, qp_type: QpType) -> Self {
        self.qp_type = qp_type;
        self
    }

    /// Another completion queue for receives.
    #[must_use]
    pub fn recv_cq(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = cq.clone();
        self
    }

    /// Its messages take their receives from `srq`, not from a queue of its own, whose sizes are
    /// then 0.
    #[must_use]
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Sends that may be outstanding.
    #[must_use]
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Receives that may be outstanding.
    #[must_use]
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.cap.max_recv_wr = requests;
        self
    }

    /// Scatter-gather entries of a send.
    #[must_use]
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.cap.max_send_sge = entries;
        self
    }

    /// Scatter-gather entries of a receive.
    #[must_use]
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.cap.max_recv_sge = entries;
        self
    }

    /// Bytes of inline data of a send.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// All sizes at once.
    #[must_use]
    pub fn cap(mut self, cap: QpCap) -> Self {
        self.cap = cap;
        self
    }

    /// Whether every send makes a completion, signaled or not (`sq_sig_all`). By default no.
    #[must_use]
    pub fn signal_all(mut self, all: bool) -> Self {
        self.sq_sig_all = all;
        self
    }

    /// Which of the port's GIDs it sends from. By default
    /// [`Device::default_gid_index`](crate::Device::default_gid_index).
    #[must_use]
    pub fn sgid_index(mut self, index: u8) -> Self {
        self.sgid_index = Some(index);
        self
    }

    /// Makes it, in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// [`CreateQpError`]: what was asked for and what the device allows.
    pub fn create(self) -> Result<QueuePair, CreateQpError> {
        if self.qp_type == QpType::Gsi {
            // The device would hand it every management datagram, and rdma_cm would hear none.
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
