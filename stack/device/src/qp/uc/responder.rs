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

use urxe_wire::{Kind, PacketView, Psn, Rkey};

use crate::cq::{Completion, QpEventType, WcOpcode, WcStatus};
use crate::qp::context::Context;
use crate::qp::gather::{LocalFault, check, scatter};
use crate::qp::qp_core::QpCore;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::service::ReceiveHalf;
use crate::qp::wr::{PostError, RecvRequest};
use urxe_memory::Access;
use urxe_types::counters::Counter;

/// So far behind the expected PSN a packet counts as late or repeated: more than any network holds
/// back, and little of the PSN space.
const LATE: i32 = 1 << 16;

/// The message that the expected packet must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None: the next packet begins one, or belongs to one that was given up.
    None,
    /// A SEND; so many bytes have arrived.
    Send { received: u64 },
    /// A WRITE: where the rest goes.
    Write { va: u64, rkey: Rkey, left: u32, total: u32 },
}

/// Why a packet, and with it its message, is not taken.
enum Refused {
    /// Dropped, for the reason that the counter names.
    Dropped(Counter),
    /// The receive at the head of the queue cannot be used: the queue pair fails (class A).
    Local(LocalFault),
}

impl From<Counter> for Refused {
    fn from(reason: Counter) -> Self {
        Self::Dropped(reason)
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::qp) struct Responder {
    queue: RecvQueue,
    expected_psn: Psn,
    message: Message,
}

impl Responder {
    pub fn new(queue: RecvQueue) -> Self {
        Self { queue, expected_psn: Psn::new(0), message: Message::None }
    }

    fn fail(&mut self, fault: LocalFault, qp: &mut QpCore, cx: &Context<'_>) {
        tracing::debug!(qp = %qp.qpn, %fault, "receive: local protection error");
        if let Some(wqe) = self.queue.pop() {
            let completion =
                Completion::new(wqe.wr_id, qp.qpn, WcOpcode::Recv, WcStatus::LocProtErr);
            qp.complete_recv(completion, true, cx);
        }
        qp.raise(QpEventType::QpFatal, cx);
        qp.fatal = true;
    }

    fn execute(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Refused> {
        let info = packet.info();
        if info.position.is_start() {
            // A peer that gave up a message half-way (class D1): what it begins now is what counts.
            self.message = Message::None;
        } else {
            let fits = match self.message {
                Message::None => false,
                Message::Send { .. } => info.kind == Kind::Send,
                Message::Write { .. } => info.kind == Kind::Write,
            };
            if !fits {
                return Err(Counter::DropIncomplete.into());
            }
        }
        if !info.position.fits(packet.payload_len(), qp.mtu() as usize) {
            return Err(Counter::DropBadLength.into());
        }
        match info.kind {
            Kind::Send => self.on_send(qp, cx, packet),
            _ => self.on_write(qp, cx, packet),
        }
    }

    fn on_send(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Refused> {
        let received = match self.message {
            Message::Send { received } => received,
            _ => 0,
        };
        let Some((wqe, sges)) = self.queue.front() else {
            return Err(Counter::DropNoReceive.into());
        };
        if received == 0 {
            check(&mut cx.pins, qp.recv_pd, sges, Access::LOCAL_WRITE).map_err(Refused::Local)?;
        }
        let total = received + packet.payload_len() as u64;
        if total > wqe.length || total > qp.max_message {
            return Err(Counter::DropTooLong.into());
        }
        scatter(&mut cx.pins, qp.recv_pd, sges, received, packet.payload())
            .map_err(Refused::Local)?;
        self.message = Message::Send { received: total };
        if packet.info().position.is_end() {
            self.complete(qp, cx, packet, WcOpcode::Recv, total);
        }
        Ok(())
    }

    fn on_write(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Refused> {
        let info = packet.info();
        let (va, rkey, left, total) = match (self.message, packet.reth()) {
            (Message::Write { va, rkey, left, total }, _) => (va, rkey, left, total),
            (_, Some(reth)) => (reth.va, reth.rkey, reth.dma_len, reth.dma_len),
            (_, None) => return Err(Counter::DropIncomplete.into()),
        };
        if !qp.attr.access_flags.contains(Access::REMOTE_WRITE) {
            return Err(Counter::DropNoRight.into());
        }
        let payload = packet.payload();
        let len = payload.len() as u32;
        let ends = info.position.is_end();
        let adds_up = if ends { len == left } else { len < left };
        if !adds_up || u64::from(total) > qp.max_message {
            return Err(Counter::DropBadLength.into());
        }
        if info.needs_recv_wqe && self.queue.is_empty() {
            return Err(Counter::DropNoReceive.into());
        }
        if left != 0 {
            // The whole rest is checked, so that a message that must be refused writes nothing.
            let refused = |error: &dyn std::fmt::Display| {
                tracing::debug!(qp = %qp.qpn, %error, "WRITE: remote access error");
                Refused::Dropped(Counter::DropNoRight)
            };
            let need = Access::REMOTE_WRITE;
            let pin = cx.pins.access(rkey.0, qp.accessor(), need, va, u64::from(left));
            let pin = pin
                .inspect_err(|error| cx.device.counters.add(error.into()))
                .map_err(|e| refused(&e))?;
            let written =
                pin.write(va, payload).inspect_err(|fault| cx.device.counters.add(fault.into()));
            written.map_err(|e| refused(&e))?;
        }
        if info.position.is_start() {
            cx.device.counters.add(Counter::RdmaRecvs);
        }
        self.message =
            Message::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, total };
        if ends {
            if info.completes_recv_wqe {
                self.complete(qp, cx, packet, WcOpcode::RecvRdmaWithImm, u64::from(total));
            }
            self.message = Message::None;
        }
        Ok(())
    }

    /// Completes the oldest receive with the packet that ended its message.
    fn complete(
        &mut self,
        qp: &mut QpCore,
        cx: &Context<'_>,
        packet: &PacketView<'_>,
        opcode: WcOpcode,
        byte_len: u64,
    ) {
        self.message = Message::None;
        let Some(wqe) = self.queue.pop() else { return };
        let mut completion = Completion::new(wqe.wr_id, qp.qpn, opcode, WcStatus::Success)
            .with_byte_len(u32::try_from(byte_len).unwrap_or(u32::MAX));
        completion.src_qp = qp.attr.dest_qp_num;
        if let Some(imm) = packet.imm() {
            completion = completion.with_imm(imm.data);
        }
        qp.complete_recv(completion, packet.solicited(), cx);
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

    fn flush(&mut self, qp: &mut QpCore, cx: &Context<'_>) {
        self.message = Message::None;
        self.queue.flush(qp, cx);
    }

    fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.queue.push(request)
    }

    fn on_request(&mut self, qp: &mut QpCore, cx: &mut Context<'_>, packet: &PacketView<'_>) {
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
        match self.execute(qp, cx, packet) {
            Ok(()) => {}
            Err(Refused::Dropped(reason)) => {
                tracing::debug!(qp = %qp.qpn, %psn, reason = reason.name(), "message dropped");
                self.message = Message::None;
                cx.device.counters.add(reason);
            }
            Err(Refused::Local(fault)) => self.fail(fault, qp, cx),
        }
    }
}
