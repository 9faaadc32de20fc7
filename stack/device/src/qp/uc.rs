//! The responder of an unreliable connection: executes the peer's messages in order, each whole or
//! not at all, and answers nothing.
//!
//! ```text
//!   expected PSN         -> goes on with the message, or begins one
//!   a gap                -> the message under way is given up; the next FIRST or ONLY begins one (9.8.2.2)
//!   a PSN just before it -> a copy, or overtaken by others: dropped
//! ```
//! A message that is given up leaves its receive for the next one. What it had written before stays
//! written.
//!
//! The specification takes every FIRST and ONLY with an unexpected PSN for a new message, and so
//! does `rdma_rxe`: a copy that the network made would be delivered twice, and a late one out of
//! order. A PSN within [`LATE`] behind the expected one is taken for that here; one further away is
//! a peer that was not heard for long.
//!
//! Sources: IBTA vol. 1, 9.8.2.2 (responder), 9.9.3 (classes of error); the kernel's rxe_resp.c for
//! what the classes come to: all but a fault of the own receive is dropped silently. With a shared
//! receive queue `rdma_rxe` completes what such a message had taken from there with an error (class
//! D); here the queue pair keeps it for its next message.

use urxe_wire::{Kind, PacketView, Psn};

use crate::cq::WcOpcode;
use crate::qp::context::QpContext;
use crate::qp::inbound::{Message, Refusal};
use crate::qp::qp_core::QpCore;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::service::ReceiveHalf;
use urxe_memory::Access;
use urxe_types::counters::Counter;

/// So far behind the expected PSN a packet counts as late or repeated: more than any network holds
/// back, and little of the PSN space.
const LATE: i32 = 1 << 16;

/// See the module.
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
            // A peer that gave up a message half-way (class D1): what it begins now is what counts.
            self.message = Message::None;
        }
        if !self.message.continues_with(info) {
            return Err(Refusal::NoStart);
        }
        if !info.position.fits(packet.payload_len(), qp.mtu() as usize) {
            return Err(Refusal::BadLength);
        }
        let (total, opcode) = if info.kind == Kind::Send {
            (self.message.place_send(&mut self.queue, qp, cx, packet)?, WcOpcode::Recv)
        } else if qp.attr.access_flags.contains(Access::REMOTE_WRITE) {
            let total = self.message.place_write(&mut self.queue, qp, cx, packet)?;
            (total, WcOpcode::RecvRdmaWithImm)
        } else {
            return Err(Refusal::NoRight);
        };
        if info.position.is_end() {
            self.message = Message::None;
        }
        if info.completes_recv_wqe {
            self.queue.complete(opcode, total, packet, None, qp, cx);
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
