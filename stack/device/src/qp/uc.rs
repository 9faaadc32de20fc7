//! The responder of an unreliable connection, which executes the messages of the peer in order,
//! each completely or not at all, and sends no responses.
//!
//! ```text
//!   packet with                     effect
//!   ------------------------------  ---------------------------------------------------------
//!   the expected PSN                continues the message, or begins one
//!   a later PSN                     drops the message; the next FIRST or ONLY begins another
//!   a PSN at most 2^16 before it    dropped: a duplicate, or overtaken by other packets
//! ```
//!
//! A dropped message leaves its receive for the next message. Bytes already written stay written.
//!
//! IBTA vol. 1, 9.8.2.2 takes every FIRST and ONLY with an unexpected PSN for a new message, as
//! `rdma_rxe` does. With that rule, a duplicate made by the network is delivered twice, and a late
//! packet out of order. This responder therefore drops packets whose PSN is at most [`LATE`] behind
//! the expected one. A larger difference means that no packet of the peer arrived for a long time.
//!
//! Sources: IBTA vol. 1, 9.8.2.2 (responder), 9.9.3 (classes of error). As in `rxe_resp.c`, every
//! error but that of a local receive drops the message silently. One difference: `rdma_rxe`
//! completes the shared receive of a dropped message with an error (class D). Here the queue pair
//! keeps that receive for its next message.

use urxe_wire::{Kind, PacketView, Psn};

use crate::qp::context::QpContext;
use crate::qp::inbound::{Message, Refusal};
use crate::qp::qp_core::QpCore;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::service::ReceiveHalf;
use urxe_memory::Access;
use urxe_types::counters::Counter;

/// The number of PSNs behind the expected one that count as late or duplicate. Networks delay fewer
/// packets than that, and the PSN space is far larger.
const LATE: i32 = 1 << 16;

/// The responder of an unreliable connection.
#[derive(Debug)]
pub(super) struct Responder {
    queue: RecvQueue,
    expected_psn: Psn,
    message: Message,
}

impl Responder {
    pub fn new(queue: RecvQueue) -> Self {
        Self { queue, expected_psn: Psn::new(0), message: Message::None }
    }

    fn execute(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Refusal> {
        let info = packet.info();
        if info.position.is_start() {
            // The peer may abandon a message before its end (class D1). The message that it begins
            // now replaces that one.
            self.message = Message::None;
        }
        if !self.message.continues_with(info) {
            return Err(Refusal::NoStart);
        }
        if !info.position.fits(packet.payload_len(), qp.mtu() as usize) {
            return Err(Refusal::BadLength);
        }
        let total = if info.kind == Kind::Send {
            self.message.place_send(&mut self.queue, qp, cx, packet)?
        } else if qp.attr.access_flags.contains(Access::REMOTE_WRITE) {
            self.message.place_write(&mut self.queue, qp, cx, packet)?
        } else {
            return Err(Refusal::NoRight);
        };
        if info.position.is_end() {
            self.message = Message::None;
        }
        if info.completes_recv_wqe {
            self.queue.complete(total, packet, None, qp, cx);
        }
        Ok(())
    }
}

impl ReceiveHalf for Responder {
    fn start(&mut self, qp: &QpCore) {
        self.expected_psn = qp.attr.rq_psn;
        self.message = Message::None;
    }

    fn reset(&mut self) {
        self.queue.clear();
        self.message = Message::None;
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        self.message = Message::None;
        self.queue.flush(qp, cx);
    }

    fn queue(&mut self) -> Option<&mut RecvQueue> {
        Some(&mut self.queue)
    }

    fn on_request(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>) {
        let psn = packet.psn();
        let distance = psn.distance(self.expected_psn);
        if (-LATE..0).contains(&distance) {
            cx.device.counters.add(Counter::DuplicateRequest);
            return cx.device.counters.add(Counter::DropDuplicate);
        }
        if distance != 0 {
            cx.device.counters.add(Counter::OutOfSeqRequest);
            self.message = Message::None;
        }
        self.expected_psn = psn.next();
        let Err(refusal) = self.execute(qp, cx, packet) else { return };
        let reason = match refusal {
            Refusal::Local => return self.queue.fail_locally(qp, cx),
            Refusal::NoReceive => Counter::DropNoReceive,
            Refusal::TooLong => Counter::DropTooLong,
            Refusal::BadLength => Counter::DropBadLength,
            Refusal::NoStart => Counter::DropIncomplete,
            Refusal::NoRight | Refusal::Remote => Counter::DropNoRight,
        };
        tracing::debug!(qp = %qp.qpn, %psn, reason = reason.name(), "message dropped");
        self.message = Message::None;
        cx.device.counters.add(reason);
    }
}
