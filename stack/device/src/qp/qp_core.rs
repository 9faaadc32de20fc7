//! The part of a queue pair that its two halves share.

use urxe_wire::{Bth, Opcode, PKey, Psn, Qpn};

use super::attr::{QpAttr, QpCap, QpState, QpType};
use super::context::QpContext;
use crate::cq::{AsyncEvent, Completion, CqRef, QpEventType};
use crate::srq::Srq;
use crate::srq::xrcd::XrcdRef;
use urxe_memory::{Accessor, PdId};
use urxe_types::limits::Limits;
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// The state and attributes that the requester and the responder share.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads are adjacent, up to the first attributes
pub(crate) struct QpCore {
    pub qpn: Qpn,
    pub pd: PdId,
    /// The longest message, in bytes.
    pub max_message: u64,
    /// Where sends complete, if it sends.
    pub send_cq: Option<CqRef>,
    pub pkey: PKey,
    pub qp_type: QpType,
    pub state: QpState,
    /// Its receives come from a shared receive queue.
    pub has_srq: bool,
    pub sq_sig_all: bool,
    /// Set M (migrated) in packets, which some NICs want and the kernel's `rdma_rxe` leaves clear.
    pub mig_req: bool,
    /// A completion found its queue full. `Qp::apply_outcome` reads it and enters the error state.
    pub cq_overrun: bool,
    /// The state machine of a half found that the queue pair must fail, and has made the completion
    /// or event that tells why. `Qp::apply_outcome` reads it and enters the error state.
    pub fatal: bool,
    /// The state machine of the sending half can send no more. `Qp::apply_outcome` reads it and
    /// enters SQE; receiving goes on.
    pub send_failed: bool,
    pub attr: QpAttr,
    /// The XRC domain of an XRC target, instead of a protection domain and a completion queue.
    pub xrc: Option<XrcTarget>,
    /// Where receives complete, if it receives and is no XRC target.
    pub recv_cq: Option<CqRef>,
    /// `pd`, or the parent domain of it that the queue pair was made with.
    pub created_with_pd: PdId,
    /// Protection domain of receive buffers: the shared receive queue's, if there is one.
    pub recv_pd: PdId,
    /// No CNP to the peer before this time.
    pub next_cnp_at: Time,
}

/// An XRC target's domain, and the queue that the message under way names. That queue's protection
/// domain and completion queue are the queue pair's as long as the message lasts (A14).
#[derive(Debug)]
pub(crate) struct XrcTarget {
    pub xrcd: XrcdRef,
    pub srq: Option<Arc<Srq>>,
    /// How often it is open (`ibv_open_qp`): it goes when it was destroyed as often.
    pub opens: u32,
}

impl QpCore {
    /// Returns the state of a queue pair in RESET without completion queues.
    pub fn new(qpn: Qpn, qp_type: QpType, pd: PdId, cap: QpCap, limits: &Limits) -> Self {
        Self {
            qpn,
            qp_type,
            pd,
            created_with_pd: pd,
            recv_pd: pd,
            next_cnp_at: Time::ZERO,
            has_srq: false,
            state: QpState::Reset,
            attr: QpAttr { cap, ..QpAttr::default() },
            pkey: PKey::DEFAULT,
            send_cq: None,
            recv_cq: None,
            xrc: None,
            sq_sig_all: false,
            max_message: limits.max_msg_sz,
            mig_req: limits.mig_req,
            cq_overrun: false,
            fatal: false,
            send_failed: false,
        }
    }

    /// The opcode of this queue pair's service for an operation of RC: its own, or that of XRC.
    pub fn opcode(&self, of_rc: Opcode) -> Opcode {
        match self.qp_type {
            QpType::XrcSend | QpType::XrcRecv => of_rc.over_xrc(),
            _ => of_rc,
        }
    }

    /// Returns the BTH of a packet to the peer, with the opcode of this queue pair's service for
    /// `of_rc`.
    #[inline]
    pub fn bth(&self, of_rc: Opcode, psn: Psn) -> Bth {
        let mut bth = Bth::new(self.opcode(of_rc), self.attr.dest_qp_num, psn);
        (bth.pkey, bth.mig_req) = (self.pkey, self.mig_req);
        bth
    }

    /// Returns the identity by which the queue pair and its peer use memory.
    pub fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, qpn: Some(self.qpn) }
    }

    /// Path MTU in bytes.
    pub fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes() as u32
    }

    /// The local ACK timeout in nanoseconds, `None` when it is off.
    pub fn timeout_ns(&self) -> Option<u64> {
        (self.attr.timeout != 0).then(|| 4096 << (self.attr.timeout & 31))
    }

    pub fn complete_send(&mut self, mut completion: Completion, cx: &QpContext<'_>) {
        cx.batched_cq.release();
        completion.timestamp_ns = cx.now.as_ns();
        self.cq_overrun |=
            self.send_cq.as_ref().is_some_and(|cq| cq.push(completion, false).is_err());
    }

    pub fn complete_recv(
        &mut self,
        mut completion: Completion,
        solicited: bool,
        cx: &QpContext<'_>,
    ) {
        cx.batched_cq.release();
        completion.timestamp_ns = cx.now.as_ns();
        let pushed = match (&self.recv_cq, self.xrc.as_ref().and_then(|xrc| xrc.srq.as_ref())) {
            (Some(cq), _) => cq.push(completion, solicited),
            (None, Some(srq)) => srq.complete(completion, solicited),
            (None, None) => {
                debug_assert!(false, "a receive without a completion queue");
                Ok(())
            }
        };
        self.cq_overrun |= pushed.is_err();
    }

    pub fn raise(&self, event: QpEventType, cx: &QpContext<'_>) {
        cx.device.events.push(AsyncEvent::Qp(event, self.qpn));
    }
}
