//! The responder of a reliable connection, which executes the requests of the peer in PSN order,
//! each once.
//!
//! ```text
//!   PSN of the packet   handled by         effect
//!   ------------------  -----------------  ------------------------------------------------
//!   expected            on_expected        executed (super::execution), acknowledged
//!   later               on_out_of_order    stored in super::reorder_buffer, or a NAK is sent
//!   earlier             on_duplicate       the response is sent again
//! ```
//!
//! A fault causes a NAK and moves the queue pair to the error state. There are two exceptions: a
//! NAK for a sequence error, and an RNR NAK for an empty receive queue. [`super::responses`] holds
//! the responses to be sent.
//!
//! Sources: IBTA vol. 1, 9.7.4 (responder), 9.7.4.1.1 (PSN check), 9.7.5.2 (NAKs), 9.9.3 (classes
//! of error), C9-88 (zero-length RDMA checks no R_Key).

use urxe_wire::{Kind, Msn, NakCode, PacketView, Psn};

use super::execution::{Executed, Fault};
use super::gap_timer::GapTimer;
use super::reorder_buffer::{Insert, REACH, ReorderBuffer};
use super::responses::{Replay, Response, Responses};
use crate::cq::WcStatus;
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::qp::attr::QpState;
use crate::qp::context::QpContext;
use crate::qp::inbound::Message;
use crate::qp::origin::{AHEAD, PsnMatch};
use crate::qp::qp_core::QpCore;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::service::ReceiveHalf;
use urxe_types::allocate::OutOfMemory;
use urxe_types::counters::Counter;
use urxe_types::time::Time;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// The request was executed, stored or dropped.
    Fine,
    /// The queue pair moves to the error state.
    Fatal,
}

/// The responder of a reliable connection.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads are adjacent
pub(in crate::qp) struct Responder {
    pub(super) expected_psn: Psn,
    pub(super) msn: Msn,
    pub(super) message: Message,
    /// Requests behind the expected one, for which no NAK was sent.
    reorder_buffer: Option<Box<ReorderBuffer>>,
    /// The timer of the gap before which a sequence NAK or RNR NAK was sent. `None` after the
    /// expected request arrived.
    gap: Option<GapTimer>,
    pub(super) responses: Responses,
    pub(super) queue: RecvQueue,
}

impl Responder {
    pub fn new(queue: RecvQueue) -> Self {
        Self {
            queue,
            expected_psn: Psn::new(0),
            msn: Msn::masked(0),
            message: Message::None,
            reorder_buffer: None,
            gap: None,
            responses: Responses::default(),
        }
    }

    /// Handles a request.
    fn receive_request(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Handled {
        let distance = packet.psn().distance(self.expected_psn);
        if distance > 0 {
            self.on_out_of_order(qp, cx, packet);
            return Handled::Fine;
        }
        if distance < 0 {
            self.on_duplicate(qp, cx, packet);
            return Handled::Fine;
        }
        let handled = self.on_expected(qp, cx, packet);
        match &self.reorder_buffer {
            Some(buffer) if !buffer.is_empty() => self.deliver_ready(handled, qp, cx),
            _ => handled,
        }
    }

    fn on_expected(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Handled {
        let psn = packet.psn();
        self.gap = None;
        match self.execute(qp, cx, packet) {
            Ok(Executed::Done { psns, ends }) => {
                self.expected_psn = psn.add(psns);
                if ends {
                    self.msn = self.msn.add(1);
                    self.message = Message::None;
                }
                self.acknowledge(cx, packet, psns);
                Handled::Fine
            }
            Ok(Executed::NotReady) => {
                self.gap = Some(GapTimer::new(psn, cx.now));
                cx.device.counters.add(Counter::SendRnrErr);
                self.responses.push(psn, self.msn, Response::RnrNak);
                Handled::Fine
            }
            Ok(Executed::TooEarly) => {
                // The NAK follows the READ responses. So the peer sends the request again behind
                // them.
                self.gap = Some(GapTimer::new(psn, cx.now));
                self.push_sequence_nak(cx);
                Handled::Fine
            }
            Err(fault) => {
                self.fail(fault, qp, cx, psn);
                Handled::Fatal
            }
        }
    }

    /// Executes the stored requests that follow the expected one, up to the next gap. `handled` is
    /// the outcome of the expected request.
    #[cold]
    fn deliver_ready(
        &mut self,
        mut handled: Handled,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
    ) -> Handled {
        let Some(mut buffer) = self.reorder_buffer.take() else { return handled };
        while let Some(packet) = buffer.first() {
            let distance = packet.psn().distance(self.expected_psn);
            // A request that failed or was not ready is still expected, so the others are ahead.
            // After an overrun none is executed.
            if distance > 0 || qp.cq_overrun {
                break;
            }
            cx.device.counters.add(Counter::ReorderDelivered);
            if distance == 0 {
                handled = self.on_expected(qp, cx, &packet);
            } else {
                self.on_duplicate(qp, cx, &packet);
            }
            buffer.remove_first();
        }
        buffer.rearm(cx.now, cx.now.plus_ns(cx.path.window.reordering_ns()));
        self.reorder_buffer = Some(buffer);
        if self.gap.is_some() {
            self.drop_buffered(cx);
        }
        handled
    }

    /// Handles a request behind the expected one: that one was overtaken, or is lost. One NAK is
    /// sent until the peer is in order again (IBTA vol. 1, 9.7.5.2.2). The NAK is repeated if the
    /// peer evidently moved back and the packet was lost again.
    ///
    /// A request more than [`AHEAD`] packets behind the expected one is dropped without a NAK,
    /// because a forged PSN is more probable than such a loss. If it was a loss, the peer
    /// retransmits after its timeout.
    fn on_out_of_order(&mut self, qp: &QpCore, cx: &QpContext<'_>, packet: &PacketView<'_>) {
        let mut highest = packet.psn();
        if highest.distance(self.expected_psn) > AHEAD {
            cx.device.counters.add(Counter::OutOfSeqRequest);
            return cx.device.counters.add(Counter::DropOutOfSequence);
        }
        if self.gap.is_none() {
            let due = cx.now.plus_ns(cx.path.window.reordering_ns());
            let is_near = packet.psn().distance(self.expected_psn) <= REACH;
            let inserted = if is_near {
                ReorderBuffer::insert(&mut self.reorder_buffer, packet, qp.mtu(), due)
            } else {
                Insert::Full
            };
            match inserted {
                Insert::Stored => {
                    cx.device.counters.add(Counter::OutOfSeqRequest);
                    return cx.device.counters.add(Counter::ReorderBuffered);
                }
                Insert::Duplicate => {
                    cx.device.counters.add(Counter::DuplicateRequest);
                    return cx.device.counters.add(Counter::DropDuplicate);
                }
                Insert::Full => {
                    let dropped = self.drop_buffered(cx);
                    highest = dropped.filter(|psn| highest.precedes(*psn)).unwrap_or(highest);
                }
            }
        }
        cx.device.counters.add(Counter::OutOfSeqRequest);
        if GapTimer::on_out_of_order(&mut self.gap, highest, cx.now, cx.path.window.round_trip_ns())
        {
            self.push_sequence_nak(cx);
        } else {
            cx.device.counters.add(Counter::DropOutOfSequence);
        }
    }

    fn push_sequence_nak(&mut self, cx: &QpContext<'_>) {
        cx.device.counters.add(Counter::SendSeqErr);
        let nak = Response::Nak(NakCode::PsnSequence);
        self.responses.push(self.expected_psn, self.msn, nak);
    }

    /// Drops the stored requests, because the peer will send them again. Returns their highest PSN.
    fn drop_buffered(&mut self, cx: &QpContext<'_>) -> Option<Psn> {
        let (count, highest) = self.reorder_buffer.as_mut()?.clear(cx.now);
        cx.device.counters.add_many(Counter::DropOutOfSequence, count as u64);
        highest
    }

    /// Handles a request that was executed before (IBTA vol. 1, 9.7.4.1.1). A SEND or WRITE is
    /// acknowledged again, a READ reads again, and an atomic gets its stored response. A PSN more
    /// than [`AHEAD`] packets ago is none that the peer still has, and is dropped.
    fn on_duplicate(&mut self, qp: &QpCore, cx: &QpContext<'_>, packet: &PacketView<'_>) {
        cx.device.counters.add(Counter::DuplicateRequest);
        let replayed = match packet.info().kind {
            Kind::ReadRequest => match packet.reth() {
                Some(reth) => self.responses.replay_read(packet.psn(), reth, qp.mtu()),
                None => Replay::Unknown,
            },
            Kind::CompareSwap | Kind::FetchAdd => self.responses.replay_once(packet.psn(), true),
            Kind::AtomicWrite | Kind::Flush => self.responses.replay_once(packet.psn(), false),
            _ if packet.psn().distance(self.expected_psn) < -AHEAD => Replay::Unknown,
            _ => {
                self.push_ack(self.expected_psn.sub(1), cx);
                Replay::Queued
            }
        };
        if replayed == Replay::Unknown {
            cx.device.counters.add(Counter::DropDuplicate);
        }
    }

    fn push_ack(&mut self, psn: Psn, cx: &QpContext<'_>) {
        if self.responses.push_ack(psn, self.msn) {
            cx.device.counters.add(Counter::AckDeferred);
        }
    }

    fn acknowledge(&mut self, cx: &QpContext<'_>, packet: &PacketView<'_>, psns: u32) {
        if packet.ack_req() && matches!(packet.info().kind, Kind::Send | Kind::Write) {
            self.push_ack(packet.psn().add(psns - 1), cx);
        }
    }

    fn fail(&mut self, fault: Fault, qp: &mut QpCore, cx: &QpContext<'_>, psn: Psn) {
        let Fault { nak, status, .. } = fault;
        tracing::debug!(qp = %qp.qpn, %psn, ?nak, ?status, "request refused");
        let receiving = matches!(self.message, Message::Send { .. });
        if receiving || matches!(fault.status, WcStatus::LocLenErr | WcStatus::LocProtErr) {
            self.queue.fail(fault.status, qp, cx);
        }
        self.responses.push_fatal_nak(psn, self.msn, fault.nak);
        qp.raise(fault.event, cx);
    }
}

impl ReceiveHalf for Responder {
    fn reserve(&mut self, depth: usize) -> Result<(), OutOfMemory> {
        self.responses.reserve(depth)
    }

    fn start(&mut self, qp: &QpCore) {
        self.expected_psn = qp.attr.rq_psn;
        self.msn = Msn::masked(0);
        self.message = Message::None;
        self.reorder_buffer = None;
        self.gap = None;
        self.responses.start(usize::from(qp.attr.max_dest_rd_atomic));
    }

    fn attributes_changed(&mut self, qp: &QpCore) {
        self.responses.set_depth(usize::from(qp.attr.max_dest_rd_atomic));
    }

    fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    fn has_data_to_send(&self) -> bool {
        !self.responses.is_only_ack()
    }

    fn take_ack(&mut self, qp: &QpCore) -> Option<Ack> {
        self.responses.take_ack(qp)
    }

    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        match self.responses.transmit(qp, cx, run) {
            Ok(sent) => sent,
            Err(fault) => {
                // The queue pair is already in the error state if a later request failed before
                // this response was sent.
                if qp.state != QpState::Err {
                    qp.raise(fault.event, cx);
                    qp.fatal = true;
                }
                // Sends the NAK that reports the fault. A NAK reads no memory, so this cannot fail
                // again.
                self.responses.transmit(qp, cx, run).unwrap_or(TransmitStatus::Idle)
            }
        }
    }

    fn reset(&mut self) {
        self.queue.clear();
        self.message = Message::None;
        self.reorder_buffer = None;
        self.responses.clear();
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        self.message = Message::None;
        self.reorder_buffer = None;
        self.responses.retain_final_nak();
        self.queue.flush(qp, cx);
    }

    fn queue(&mut self) -> Option<&mut RecvQueue> {
        Some(&mut self.queue)
    }

    fn psn_match(&self, packet: &PacketView<'_>) -> PsnMatch {
        PsnMatch::of_request(packet.psn().distance(self.expected_psn))
    }

    fn on_request(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>) {
        qp.fatal |= self.receive_request(qp, cx, packet) == Handled::Fatal;
    }

    /// Sends a sequence NAK when the missing request counts as lost.
    fn on_timer(&mut self, cx: &QpContext<'_>) {
        if ReorderBuffer::is_due(&mut self.reorder_buffer, cx.now)
            && let Some(highest) = self.drop_buffered(cx)
        {
            self.gap = Some(GapTimer::new(highest, cx.now));
            self.push_sequence_nak(cx);
        }
    }

    #[inline]
    fn deadline(&self) -> Time {
        ReorderBuffer::deadline(self.reorder_buffer.as_deref()).min(self.responses.resume_at())
    }

    fn resume_at(&self) -> Time {
        self.responses.resume_at()
    }

    fn resume(&mut self, now: Time) {
        self.responses.resume(now);
    }
}
