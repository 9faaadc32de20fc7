//! The part of a queue pair that its two halves share: the requester, which sends requests, and the
//! responder, which receives them.
//!
//! ```text
//!   comes in                          from                          by
//!   --------------------------------  ----------------------------  -----------------------------
//!   type, number, PD, CQs, XRC domain creation                      QpCore::new, Qp::new,
//!                                                                   Qp::xrc_target
//!   pd, recv_pd, xrc.srq of an XRC    the SRQ that a message names  find_srq (rc/xrc.rs)
//!   target
//!   pkey, always the default P_Key    creation                      QpCore::new
//!   state, attr                       ibv_modify_qp                 Qp::transition
//!   state                             a failure                     Qp::enter_error,
//!                                                                   Qp::enter_send_error
//!   cq_overrun, fatal, send_failed    the halves                    their calls
//!   next_cnp_at                       a marked packet               Qp::take_cnp
//!
//!   is decided here
//!   --------------------------------  ----------------------------------------------------------
//!   opcode, bth                       the opcode (XRC has its own) and BTH of a packet to the peer
//!   timeout_ns                        the local ACK timeout of the attributes
//!   complete_recv                     which completion queue gets a receive
//!
//!   goes out                          to                            by
//!   --------------------------------  ----------------------------  -----------------------------
//!   completions                       send_cq, recv_cq, or the      complete_send, complete_recv;
//!                                     queue of the XRC SRQ          those that an ACK causes:
//!                                                                   SendCompletions
//!   events                            the device's event queue      raise
//!   failures                          Qp::apply_outcome             cq_overrun, fatal, send_failed
//! ```
//!
//! The lock of the queue pair protects all fields. `Device` takes that lock for every call. The
//! lock order is queue pair before SRQ before completion queue.

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

/// The shortest local ACK timeout in nanoseconds: a tick of `rdma_rxe`'s clock at 250 Hz, to which
/// `rxe_qp_from_attr` lengthens shorter timeouts. Programs ask for microseconds because NICs, too,
/// wait longer. On a busy machine a thread that has work often waits a millisecond for a processor.
const SHORTEST_TIMEOUT_NS: u64 = 4_000_000;

/// The state and attributes that the requester and the responder share.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads come first, up to `sends_watched`
pub(crate) struct QpCore {
    pub qpn: Qpn,
    /// The protection domain of memory accesses, except for receive buffers (`recv_pd`). If the
    /// queue pair was created with a parent domain, that domain's parent. For an XRC target, that
    /// of the SRQ that the current message names.
    pub pd: PdId,
    /// The length in bytes of the longest message. [`Qp::new`](super::Qp::new) lowers it to the
    /// path MTU for datagram queue pairs.
    pub max_message: u64,
    /// The completion queue of sends; `None` for a queue pair that sends no requests.
    pub send_cq: Option<CqRef>,
    pub pkey: PKey,
    pub qp_type: QpType,
    pub state: QpState,
    /// Receives come from a shared receive queue.
    pub has_srq: bool,
    pub sq_sig_all: bool,
    /// Packets have the bit M (migrated) set. Some NICs expect that bit; the kernel's `rdma_rxe`
    /// leaves it clear.
    pub mig_req: bool,
    /// A completion was lost because its queue was full. `Qp::apply_outcome` clears this and enters
    /// the error state.
    pub cq_overrun: bool,
    /// The requester or the responder found that the queue pair must fail. It has already reported
    /// the reason by a completion or an event. `Qp::apply_outcome` clears this and enters the
    /// error state.
    pub fatal: bool,
    /// The requester failed and can send no more. `Qp::apply_outcome` clears this and enters SQE;
    /// the responder continues.
    pub send_failed: bool,
    /// A program waits for sends that are not complete. `Qp::apply_outcome` looks after them.
    pub sends_watched: bool,
    pub attr: QpAttr,
    /// A send has failed since the last RESET.
    pub send_lost: bool,
    /// The XRC domain of an XRC target, whose SRQs have the protection domains and completion
    /// queues of received messages.
    pub xrc: Option<XrcTarget>,
    /// The completion queue of receives; `None` for XRC targets and for queue pairs that receive
    /// nothing.
    pub recv_cq: Option<CqRef>,
    /// The protection domain named at creation: `pd` or one of its parent domains. It counts the
    /// queue pair, and cannot be deallocated before.
    pub created_with_pd: PdId,
    /// The protection domain of receive buffers: that of the shared receive queue, if there is one.
    /// For an XRC target, the same as `pd`.
    pub recv_pd: PdId,
    /// The earliest time for the next congestion notification packet (CNP) to the peer.
    pub next_cnp_at: Time,
}

/// The XRC domain of an XRC target, and the shared receive queue that the current message names.
/// For that message, the protection domain and completion queue of the SRQ are those of the queue
/// pair (IBTA vol. 1, annex A14).
#[derive(Debug)]
pub(crate) struct XrcTarget {
    pub xrcd: XrcdRef,
    pub srq: Option<Arc<Srq>>,
    /// The number of handles that are open (`ibv_open_qp`). The last `ibv_destroy_qp` destroys the
    /// queue pair.
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
            sends_watched: false,
            send_lost: false,
        }
    }

    /// Returns `opcode`, or its XRC counterpart if this is an XRC queue pair. XRC shares the code
    /// of RC, which names the opcodes of RC. UC and UD pass their own opcodes.
    pub fn opcode(&self, opcode: Opcode) -> Opcode {
        match self.qp_type {
            QpType::XrcSend | QpType::XrcRecv => opcode.over_xrc(),
            _ => opcode,
        }
    }

    /// Returns the BTH of a packet to the peer, with the opcode from [`opcode`](Self::opcode). A
    /// datagram queue pair has no peer and replaces the destination.
    #[inline]
    pub fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        let mut bth = Bth::new(self.opcode(opcode), self.attr.dest_qp_num, psn);
        (bth.pkey, bth.mig_req) = (self.pkey, self.mig_req);
        bth
    }

    /// Returns the identity by which the queue pair and its peer use memory.
    pub fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, qpn: Some(self.qpn) }
    }

    /// Returns the path MTU in bytes.
    pub fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes() as u32
    }

    /// Returns the local ACK timeout in nanoseconds, or `None` if the timeout is off.
    ///
    /// The formula is 4.096 µs · 2^timeout (IBTA vol. 1, 9.7.6.1.3), but at least
    /// [`SHORTEST_TIMEOUT_NS`]. `transition::check_values` refuses a timeout above 31, so the mask
    /// changes no value; the mask keeps the shift in range.
    pub fn timeout_ns(&self) -> Option<u64> {
        let timeout_ns = || SHORTEST_TIMEOUT_NS.max(4096 << (self.attr.timeout & 31));
        (self.attr.timeout != 0).then(timeout_ns)
    }

    /// Adds the completion of a send to its queue, and notes an overrun.
    pub fn complete_send(&mut self, mut completion: Completion, cx: &QpContext<'_>) {
        cx.batched_cq.release();
        completion.timestamp_ns = cx.now.as_ns();
        debug_assert!(self.send_cq.is_some(), "a send without a completion queue");
        let solicited = false; // only receives are
        self.cq_overrun |=
            self.send_cq.as_ref().is_some_and(|cq| cq.push(completion, solicited).is_err());
    }

    /// Adds the completion of a receive to its queue, and notes an overrun. An XRC target uses the
    /// queue of the SRQ that the message named. `solicited`: the message asked for an event.
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

    /// Reports an asynchronous event of this queue pair.
    pub fn raise(&self, event: QpEventType, cx: &QpContext<'_>) {
        cx.device.events.push(AsyncEvent::Qp(event, self.qpn));
    }
}
