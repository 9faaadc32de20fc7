//! The completer: the effect of ACKs, NAKs and other responses on the requester.
//!
//! Every response names a PSN, and so acknowledges all SENDs and WRITEs before it. That does not
//! acknowledge a READ, atomic, ATOMIC WRITE or FLUSH before it whose own response is missing. That
//! response may have been overtaken. So a response that arrived early is kept for a short time in
//! the [`super::reorder_buffer`]. After that time the response counts as an implied NAK, and the
//! requester moves back to the first missing response.
//!
//! Sources: IBTA vol. 1, 9.7.5.1 (responses), 9.7.5.2 (NAKs), C9-134 (implied NAK), 9.7.7 (handling
//! by the requester).

use urxe_wire::{Kind, NakCode, PacketView, Payload, Position, Psn, Syndrome};

use super::recovery::Due;
use super::reorder_buffer::{Insert, ReorderBuffer};
use super::requester::Requester;
use crate::cq::WcStatus;
use crate::path::window::PACKET_OVERHEAD;
use crate::qp::completion_batch::SendCompletions;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use crate::qp::queue::SendWqe;
use crate::qp::sge_copy::scatter;
use crate::qp::work_request::SendOp;
use urxe_types::counters::Counter;

/// The oldest work request failed, and the queue pair moves to the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

impl Requester {
    /// Handles an ACK, a NAK, a READ response or an atomic response.
    pub(super) fn receive_response(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Failed> {
        self.handle_response(qp, cx, packet)?;
        if self.reorder_buffer.as_ref().is_some_and(|buffer| !buffer.is_empty()) {
            self.deliver_ready(qp, cx)?;
        }
        self.complete_failed(qp, cx)
    }

    fn handle_response(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Failed> {
        let psn = packet.psn();
        let outstanding = self.sent_psn.steps_from(self.una);
        if psn.steps_from(self.una) >= outstanding {
            let counter = if psn.distance(self.una) < 0 {
                Counter::DropDuplicate
            } else {
                Counter::DropGhostAck
            };
            cx.device.counters.add(counter);
            return Ok(());
        }
        if !matches!(packet.info().kind, Kind::ReadResponse | Kind::AtomicAck) {
            return self.on_acknowledge(qp, cx, packet);
        }
        if !self.acknowledge_before(psn, qp, cx) {
            self.on_early_response(packet, qp, cx);
            return Ok(());
        }
        self.on_response_data(qp, cx, packet)
    }

    /// Handles the buffered responses that are next now.
    #[cold]
    fn deliver_ready(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>) -> Result<(), Failed> {
        let Some(mut buffer) = self.reorder_buffer.take() else { return Ok(()) };
        let before = self.una;
        while let Some(packet) = buffer.first() {
            let is_acknowledgement = packet.info().kind == Kind::Ack;
            let turn = if is_acknowledgement { packet.psn().next() } else { packet.psn() };
            // A response whose PSN was acknowledged by a later one is a duplicate.
            let is_due = turn.distance(self.una) <= 0 || self.acknowledge_before(turn, qp, cx);
            if !is_due || qp.cq_overrun {
                break;
            }
            cx.device.counters.add(Counter::ReorderDelivered);
            self.handle_response(qp, cx, &packet)?;
            buffer.remove_first();
        }
        if buffer.is_empty() || self.una != before {
            buffer.rearm(cx.now, cx.now.plus_ns(cx.path.window.reordering_ns()));
        }
        self.reorder_buffer = Some(buffer);
        Ok(())
    }

    /// Completes the entry that could not be sent, once all entries before it are complete.
    pub(super) fn complete_failed(
        &mut self,
        qp: &mut QpCore,
        cx: &QpContext<'_>,
    ) -> Result<(), Failed> {
        match self.failed {
            Some(status) if self.cursor == self.queue.head() => self.fail_head(qp, cx, status),
            _ => Ok(()),
        }
    }

    /// Handles the timers that are due at `cx.now`.
    pub(super) fn check_timers(
        &mut self,
        qp: &mut QpCore,
        cx: &QpContext<'_>,
    ) -> Result<(), Failed> {
        if ReorderBuffer::is_due(&mut self.reorder_buffer, cx.now)
            && let Some(highest) = self.drop_buffered(cx)
        {
            self.implied_nak(highest, qp, cx);
        }
        match self.recovery.on_timer(qp, cx) {
            Due::Nothing | Due::Resume => Ok(()),
            Due::Probe => {
                self.probe(cx);
                Ok(())
            }
            Due::Retransmit => {
                self.retransmit(cx);
                Ok(())
            }
            Due::GiveUp => {
                cx.device.counters.add(Counter::RetryExceededErr);
                tracing::info!(
                    qp = %qp.qpn, una = %self.una,
                    "retry count exceeded: the peer does not respond"
                );
                if self.suspects_path_mtu(qp) {
                    cx.device.counters.add(Counter::PathMtuSuspected);
                    tracing::warn!(
                        qp = %qp.qpn, path_mtu = self.mtu,
                        "the peer acknowledged shorter packets, but none of the path MTU: a router \
                         may have a smaller MTU; choose a smaller path MTU for the queue pair"
                    );
                }
                self.fail_head(qp, cx, WcStatus::RetryExcErr)
            }
        }
    }

    /// Moves back to the oldest unacknowledged packet after a loss.
    fn retransmit(&mut self, cx: &QpContext<'_>) {
        cx.device.counters.add(Counter::CompleterRetryErr);
        cx.path.window.on_loss(cx.now);
        self.rewind(self.una, cx);
    }

    /// Sends a probe: moves back by one packet. That is the packet sent last, or sent again last if
    /// the window has shrunk since. If the oldest request is a READ, moves back to its first
    /// missing response, because a responder does not report which responses were sent. Atomics,
    /// ATOMIC WRITEs and FLUSHes may take long, and only the timer repeats them.
    fn probe(&mut self, cx: &QpContext<'_>) {
        if self.cursor_psn == self.una {
            return;
        }
        if self.reads.is_empty() {
            self.rewind(self.cursor_psn.sub(1), cx);
            self.begin_burst_of_one();
        } else if matches!(self.queue.wqe(self.queue.head()).op, SendOp::Read { .. }) {
            self.rewind(self.una, cx);
        } else {
            return;
        }
        cx.device.counters.add(Counter::TailProbes);
    }

    fn fail_head(
        &mut self,
        qp: &mut QpCore,
        cx: &QpContext<'_>,
        status: WcStatus,
    ) -> Result<(), Failed> {
        self.rewind(self.una, cx);
        if !self.queue.is_empty() {
            self.complete_head(qp, cx, status);
        }
        Err(Failed)
    }

    /// Marks all SEND and WRITE packets before `psn` as acknowledged. Returns `false` if a READ or
    /// atomic before `psn` lacks its response; the packets before that one are acknowledged.
    fn acknowledge_before(&mut self, psn: Psn, qp: &mut QpCore, cx: &mut QpContext<'_>) -> bool {
        let before = self.una;
        let (complete, released) = self.retire_before(psn, qp, cx);
        cx.credit.return_credit(released);
        if self.una != before {
            self.on_progress(qp, cx);
        }
        complete
    }

    /// The first half of [`acknowledge_before`](Self::acknowledge_before). Returns its result, and
    /// the credit to return in bytes.
    #[inline(always)]
    fn retire_before(&mut self, psn: Psn, qp: &mut QpCore, cx: &QpContext<'_>) -> (bool, u64) {
        let (mut complete, mut released) = (true, 0);
        let mut completions = SendCompletions::new(qp.send_cq.as_ref(), &cx.batched_cq, cx.now);
        while self.una != psn {
            let wqe = self.queue.wqe(self.queue.head());
            if wqe.op.has_response() {
                complete = false;
                break;
            }
            let index = self.una.steps_from(wqe.first_psn);
            let left = wqe.packets - index;
            let step = left.min(psn.steps_from(self.una));
            released += self.outstanding_credit(wqe, index, step);
            self.move_una(self.una.add(step));
            if step == left {
                loop {
                    completions.extend(self.retire_head(qp.qpn, WcStatus::Success));
                    if !self.has_executed() {
                        break;
                    }
                }
            }
        }
        qp.cq_overrun |= completions.overran();
        (complete, released)
    }

    fn move_una(&mut self, to: Psn) {
        if self.cursor_psn.steps_from(self.una) < to.steps_from(self.una) {
            // The response arrived while the requester was sending the packets again.
            self.cursor_psn = to;
        }
        self.una = to;
    }

    fn on_progress(&mut self, qp: &QpCore, cx: &QpContext<'_>) {
        let outstanding = self.una != self.cursor_psn;
        self.recovery.on_progress(self.una, outstanding, qp, cx);
    }

    fn on_acknowledge(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Failed> {
        let psn = packet.psn();
        let Some(aeth) = packet.aeth() else { return Ok(()) };
        let end = match aeth.syndrome {
            Syndrome::Ack(_) => psn.next(),
            Syndrome::Nak(_) => psn,
            Syndrome::RnrNak(_) => {
                cx.device.counters.add(Counter::RcvdRnrErr);
                psn
            }
            Syndrome::Reserved(_) => {
                cx.device.counters.add(Counter::DropReservedSyndrome);
                return Ok(());
            }
        };
        let complete = self.acknowledge_before(end, qp, cx);
        match aeth.syndrome {
            Syndrome::Ack(_) if !complete => self.on_early_response(packet, qp, cx),
            Syndrome::Ack(_) | Syndrome::Reserved(_) => {}
            _ if !complete => self.implied_nak(psn, qp, cx),
            Syndrome::Nak(code) => return self.on_nak(code, qp, cx),
            // A duplicate of an RNR NAK whose wait is not over.
            Syndrome::RnrNak(_) if self.recovery.is_waiting(cx.now) => {}
            Syndrome::RnrNak(timer) => {
                if !self.recovery.on_rnr_nak(timer, qp, cx) {
                    cx.device.counters.add(Counter::RetryRnrExceededErr);
                    return self.fail_head(qp, cx, WcStatus::RnrRetryExcErr);
                }
                self.rewind(psn, cx);
            }
        }
        Ok(())
    }

    fn on_nak(&mut self, code: NakCode, qp: &mut QpCore, cx: &QpContext<'_>) -> Result<(), Failed> {
        let status = match code {
            NakCode::PsnSequence => {
                cx.device.counters.add(Counter::RcvdSeqErr);
                if self.recovery.on_nak(qp, cx) {
                    self.retransmit(cx);
                }
                return Ok(());
            }
            NakCode::InvalidRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
            NakCode::InvalidRdRequest => WcStatus::RemInvRdReqErr,
        };
        self.fail_head(qp, cx, status)
    }

    /// Handles a response, other than a NAK, that passed a READ or atomic without its response.
    /// Stores the packet, or counts the missing response as lost.
    fn on_early_response(&mut self, packet: &PacketView<'_>, qp: &QpCore, cx: &QpContext<'_>) {
        if !self.recovery.rewound_for_responses() {
            let due = cx.now.plus_ns(cx.path.window.reordering_ns());
            match ReorderBuffer::insert(&mut self.reorder_buffer, packet, qp.mtu(), due) {
                Insert::Stored => return cx.device.counters.add(Counter::ReorderBuffered),
                Insert::Duplicate => return cx.device.counters.add(Counter::DropDuplicate),
                Insert::Full => {}
            }
        }
        self.implied_nak(packet.psn(), qp, cx);
    }

    /// Drops the buffered packets, because the peer will send them again. Returns their highest
    /// PSN.
    fn drop_buffered(&mut self, cx: &QpContext<'_>) -> Option<Psn> {
        let (count, highest) = self.reorder_buffer.as_mut()?.clear(cx.now);
        cx.device.counters.add_many(Counter::DropImpliedNak, count as u64);
        highest
    }

    /// Handles response `psn` as an implied NAK: a READ or atomic before it lacks its response.
    /// Requests that response again, once for each gap.
    fn implied_nak(&mut self, psn: Psn, qp: &QpCore, cx: &QpContext<'_>) {
        let dropped = self.drop_buffered(cx).filter(|highest| psn.precedes(*highest));
        let psn = dropped.unwrap_or(psn);
        if self.recovery.on_implied_nak(psn, qp, cx) {
            self.retransmit(cx);
        } else {
            cx.device.counters.add(Counter::DropImpliedNak);
        }
    }

    /// Handles the oldest missing response of a READ, atomic, ATOMIC WRITE or FLUSH. All packets
    /// before it are acknowledged.
    fn on_response_data(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Failed> {
        let psn = packet.psn();
        let position = self.queue.head();
        let wqe = *self.queue.wqe(position);
        let mtu = qp.mtu();
        let index = psn.steps_from(wqe.first_psn);
        if !is_expected_response(&wqe, index, mtu, packet) {
            tracing::debug!(
                qp = %qp.qpn, %psn, opcode = %packet.opcode(),
                "response refused: it was not requested"
            );
            return self.fail_head(qp, cx, WcStatus::BadRespErr);
        }
        let offset = u64::from(index) * u64::from(mtu);
        // The value is stored in the byte order of the host, not that of the wire.
        let value = if wqe.op.is_atomic() { packet.atomic_ack_eth() } else { None };
        let value = value.map(|eth| eth.original.to_ne_bytes());
        let data = value.as_ref().map_or(packet.data(), Payload::from);
        // Responses to ATOMIC WRITE and FLUSH carry no data.
        if wqe.op.returns_data()
            && let Err(fault) =
                scatter(&mut cx.pins, qp.pd, self.queue.sges(position), offset, data)
        {
            tracing::debug!(qp = %qp.qpn, %fault, "response: local protection error");
            return self.fail_head(qp, cx, WcStatus::LocProtErr);
        }
        self.record_response(psn, u64::from(mtu) + PACKET_OVERHEAD, cx);
        if index + 1 == wqe.packets {
            self.complete_head(qp, cx, WcStatus::Success);
        }
        self.on_progress(qp, cx);
        Ok(())
    }

    /// Records that response `psn` arrived, the oldest that was missing.
    fn record_response(&mut self, psn: Psn, cost: u64, cx: &QpContext<'_>) {
        self.move_una(psn.next());
        let Some(read) = self.reads.front_mut() else { return };
        let share = read.charged.min(cost);
        read.charged -= share;
        cx.path.window.return_read_credit(share);
        if read.end == self.una {
            cx.path.window.return_read_credit(read.charged);
            self.reads.pop_front();
        }
    }
}

/// Returns whether a response is one that the request asked for. A READ response must have the
/// right length. Its position must be LAST or ONLY exactly where a wire request ended. A responder
/// that resumes may begin with FIRST or continue with MIDDLE. The response to ATOMIC WRITE and
/// FLUSH is that to a READ of 0 bytes (`rxe_resp.c`, `send_read_response_ack`).
fn is_expected_response(wqe: &SendWqe, index: u32, mtu: u32, packet: &PacketView<'_>) -> bool {
    let info = packet.info();
    match wqe.op {
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => info.kind == Kind::AtomicAck,
        _ if info.kind != Kind::ReadResponse => false,
        SendOp::Read { .. } => {
            let ends =
                index + 1 == wqe.packets || (index + 1).is_multiple_of(wqe.read_chunk_packets);
            ends == info.position.is_end()
                && packet.payload_len() == wqe.payload_len(index, mtu) as usize
        }
        SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => {
            info.position == Position::Only && packet.payload_len() == 0
        }
        _ => false,
    }
}
