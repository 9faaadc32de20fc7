//! The responder of a reliable connection: executes the peer's requests in PSN order, each once.
//!
//! A request goes through named stages, each in its own function: sequence (is it the expected PSN,
//! a duplicate, before its turn? then [`super::held`] keeps it until that comes),
//! [`Responder::check_continues`] (does it fit the message under way?), resources and rights,
//! execution, completion, acknowledgement. A fault ends in a NAK and, but for a sequence error and
//! an empty receive queue, in the error state. What is to be sent stands in [`super::responses`].
//!
//! Sources: IBTA vol. 1, 9.7.4 (responder), 9.7.4.1.1 (PSN check), 9.7.4.1.2 (opcode sequence),
//! 9.7.5.2 (NAKs), 9.9.3 (classes of error), C9-88 (zero-length RDMA checks no R_Key).

use urxe_wire::{
    HeaderSet, Kind, Msn, NakCode, PacketView, PlacementType, Psn, Rkey, SelectivityLevel,
};

use super::gap::Gap;
use super::held::{Early, Held};
use super::responses::{Replay, Responses};
use crate::cq::{Completion, QpEventType, WcOpcode, WcStatus};
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::qp::attr::QpState;
use crate::qp::context::Context;
use crate::qp::gather::{LocalFault, check, scatter};
use crate::qp::qp_core::QpCore;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::service::ReceiveHalf;
use crate::qp::wr::{PostError, RecvRequest};
use urxe_memory::{self, Access, AccessError, Invalidator};
use urxe_types::counters::{Counter, Counters};
use urxe_types::time::Time;

/// The message that the expected packet must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None: the next packet begins one.
    None,
    /// A SEND; so many bytes have arrived.
    Send { received: u64 },
    /// A WRITE: where the rest goes.
    Write { va: u64, rkey: Rkey, left: u32, total: u32 },
}

/// What a fault does beside its NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What the peer is told.
    pub nak: NakCode,
    /// How the receive that was under way completes.
    pub status: WcStatus,
    /// What the own program is told.
    pub event: QpEventType,
}

impl Fault {
    pub(super) const INVALID_REQUEST: Self = Self {
        nak: NakCode::InvalidRequest,
        status: WcStatus::RemInvReqErr,
        event: QpEventType::QpReqErr,
    };
    pub(super) const REMOTE_ACCESS: Self = Self {
        nak: NakCode::RemoteAccess,
        status: WcStatus::RemAccessErr,
        event: QpEventType::QpAccessErr,
    };
    const LOCAL_LENGTH: Self = Self {
        nak: NakCode::InvalidRequest,
        status: WcStatus::LocLenErr,
        event: QpEventType::QpReqErr,
    };
    const REMOTE_OPERATION: Self = Self {
        nak: NakCode::RemoteOperational,
        status: WcStatus::RemOpErr,
        event: QpEventType::QpFatal,
    };
    const LOCAL_PROTECTION: Self = Self {
        nak: NakCode::RemoteOperational,
        status: WcStatus::LocProtErr,
        event: QpEventType::QpFatal,
    };
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// All is well, or the packet was dropped.
    Fine,
    /// The queue pair goes to the error state.
    Fatal,
}

/// See the module.
#[derive(Debug)]
#[repr(C)] // what each packet looks at stands together
pub(in crate::qp) struct Responder {
    pub(super) expected_psn: Psn,
    pub(super) msn: Msn,
    message: Message,
    /// Requests behind the expected one, for which no NAK was sent.
    held: Option<Box<Held>>,
    /// A sequence or RNR NAK was sent for the expected PSN, which has not come since.
    gap: Option<Gap>,
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
            held: None,
            gap: None,
            responses: Responses::default(),
        }
    }

    /// Takes a request.
    fn take_request(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Handled {
        let distance = packet.psn().distance(self.expected_psn);
        if distance > 0 {
            self.on_early(qp, cx, packet);
            return Handled::Fine;
        }
        if distance < 0 {
            self.on_duplicate(qp, cx, packet);
            return Handled::Fine;
        }
        let handled = self.on_expected(qp, cx, packet);
        match &self.held {
            Some(held) if !held.is_empty() => self.execute_held(handled, qp, cx),
            _ => handled,
        }
    }

    fn on_expected(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
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
                self.answer(cx, packet, psns);
                Handled::Fine
            }
            Ok(Executed::NotReady) => {
                self.gap = Some(Gap::new(psn, cx.now));
                cx.device.counters.add(Counter::SendRnrErr);
                self.responses.push_rnr_nak(psn, self.msn);
                Handled::Fine
            }
            Err(fault) => {
                self.fail(fault, qp, cx, psn);
                Handled::Fatal
            }
        }
    }

    /// What was missing came, and was `handled`: those behind it have their turn, up to what is
    /// missing next.
    #[cold]
    fn execute_held(
        &mut self,
        mut handled: Handled,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
    ) -> Handled {
        let Some(mut held) = self.held.take() else { return handled };
        while let Some(packet) = held.first() {
            let distance = packet.psn().distance(self.expected_psn);
            // After an RNR NAK they come again, in the error state nothing does.
            if distance > 0 || handled == Handled::Fatal || self.gap.is_some() || qp.cq_overrun {
                break;
            }
            cx.device.counters.add(Counter::HeldExecuted);
            if distance == 0 {
                handled = self.on_expected(qp, cx, &packet);
            } else {
                self.on_duplicate(qp, cx, &packet);
            }
            held.remove_first();
        }
        held.settle(cx.now, cx.now.plus_ns(cx.path.window.reordering_ns()));
        self.held = Some(held);
        if self.gap.is_some() {
            self.drop_held(cx);
        }
        handled
    }

    /// A PSN beyond the expected one: something was overtaken, or is lost. One NAK for that until
    /// the peer is back in order (9.7.5.2.2), or evidently went back and lost the same packet
    /// again.
    fn on_early(&mut self, qp: &QpCore, cx: &Context<'_>, packet: &PacketView<'_>) {
        let mut highest = packet.psn();
        if self.gap.is_none() {
            let due = cx.now.plus_ns(cx.path.window.reordering_ns());
            match Held::keep(&mut self.held, packet, qp.mtu(), due) {
                Early::Kept => {
                    cx.device.counters.add(Counter::OutOfSeqRequest);
                    return cx.device.counters.add(Counter::HeldPackets);
                }
                Early::Again => {
                    cx.device.counters.add(Counter::DuplicateRequest);
                    return cx.device.counters.add(Counter::DropDuplicate);
                }
                Early::NoRoom => {
                    let dropped = self.drop_held(cx);
                    highest = dropped.filter(|psn| highest.precedes(*psn)).unwrap_or(highest);
                }
            }
        }
        cx.device.counters.add(Counter::OutOfSeqRequest);
        if Gap::on_early(&mut self.gap, highest, cx.now, cx.path.window.round_trip_ns()) {
            self.push_sequence_nak(cx);
        } else {
            cx.device.counters.add(Counter::DropOutOfSequence);
        }
    }

    fn push_sequence_nak(&mut self, cx: &Context<'_>) {
        cx.device.counters.add(Counter::SendSeqErr);
        self.responses.push_nak(self.expected_psn, self.msn, NakCode::PsnSequence);
    }

    /// Drops what is held, since it will come again; returns the highest PSN of it.
    fn drop_held(&mut self, cx: &Context<'_>) -> Option<Psn> {
        let (count, highest) = self.held.as_mut()?.clear(cx.now);
        cx.device.counters.add_many(Counter::DropOutOfSequence, count as u64);
        highest
    }

    /// A request that was executed before (9.7.4.1.1): acknowledged again, read again, or answered
    /// from memory.
    fn on_duplicate(&mut self, qp: &QpCore, cx: &Context<'_>, packet: &PacketView<'_>) {
        cx.device.counters.add(Counter::DuplicateRequest);
        let replayed = match packet.info().kind {
            Kind::ReadRequest => match packet.reth() {
                Some(reth) => self.responses.replay_read(packet.psn(), reth, qp.mtu()),
                None => Replay::Unknown,
            },
            Kind::CompareSwap | Kind::FetchAdd => self.responses.replay_once(packet.psn(), true),
            Kind::AtomicWrite | Kind::Flush => self.responses.replay_once(packet.psn(), false),
            _ => {
                self.push_ack(self.expected_psn.sub(1), cx);
                Replay::Queued
            }
        };
        if replayed == Replay::Unknown {
            cx.device.counters.add(Counter::DropDuplicate);
        }
    }

    fn push_ack(&mut self, psn: Psn, cx: &Context<'_>) {
        if self.responses.push_ack(psn, self.msn) {
            cx.device.counters.add(Counter::AckDeferred);
        }
    }

    fn answer(&mut self, cx: &Context<'_>, packet: &PacketView<'_>, psns: u32) {
        if packet.ack_req() && matches!(packet.info().kind, Kind::Send | Kind::Write) {
            self.push_ack(packet.psn().add(psns - 1), cx);
        }
    }

    fn fail(&mut self, fault: Fault, qp: &mut QpCore, cx: &Context<'_>, psn: Psn) {
        tracing::debug!(qp = %qp.qpn, %psn, nak = ?fault.nak, status = ?fault.status, "request refused");
        let receiving = matches!(self.message, Message::Send { .. });
        if (receiving
            || fault.status == WcStatus::LocLenErr
            || fault.status == WcStatus::LocProtErr)
            && let Some(wqe) = self.queue.pop()
        {
            let completion = Completion::new(wqe.wr_id, qp.qpn, WcOpcode::Recv, fault.status);
            qp.complete_recv(completion, true, cx);
        }
        self.responses.push_fatal_nak(psn, self.msn, fault.nak);
        qp.raise(fault.event, cx);
    }

    fn execute(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        self.check_continues(packet)?;
        self.find_srq(qp, cx, packet)?;
        match packet.info().kind {
            Kind::Send => self.on_send(qp, cx, packet),
            Kind::Write => self.on_write(qp, cx, packet),
            Kind::ReadRequest => self.on_read(qp, cx, packet),
            Kind::CompareSwap | Kind::FetchAdd => self.on_atomic(qp, cx, packet),
            Kind::AtomicWrite => self.on_atomic_write(qp, cx, packet),
            Kind::Flush => self.on_flush(qp, cx, packet),
            _ => Err(Fault::INVALID_REQUEST),
        }
    }

    /// Does the packet continue the message under way, or begin one when none is (9.7.4.1.2)?
    fn check_continues(&self, packet: &PacketView<'_>) -> Result<(), Fault> {
        let info = packet.info();
        let fits = match self.message {
            Message::None => info.position.is_start(),
            Message::Send { .. } => info.kind == Kind::Send && !info.position.is_start(),
            Message::Write { .. } => info.kind == Kind::Write && !info.position.is_start(),
        };
        if fits { Ok(()) } else { Err(Fault::INVALID_REQUEST) }
    }

    fn check_length(qp: &QpCore, packet: &PacketView<'_>) -> Result<(), Fault> {
        let fits = packet.info().position.fits(packet.payload_len(), qp.mtu() as usize);
        if fits { Ok(()) } else { Err(Fault::INVALID_REQUEST) }
    }

    fn on_send(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        Self::check_length(qp, packet)?;
        let received = match self.message {
            Message::Send { received } => received,
            _ => 0,
        };
        let Some((wqe, sges)) = self.queue.front() else { return Ok(Executed::NotReady) };
        if received == 0 {
            check(&mut cx.pins, qp.recv_pd, sges, Access::LOCAL_WRITE)
                .map_err(|fault| local(qp, fault))?;
        }
        let payload = packet.payload();
        let total = received + payload.len() as u64;
        if total > wqe.length || total > qp.max_message {
            return Err(Fault::LOCAL_LENGTH);
        }
        scatter(&mut cx.pins, qp.recv_pd, sges, received, payload)
            .map_err(|fault| local(qp, fault))?;
        self.message = Message::Send { received: total };
        let ends = packet.info().position.is_end();
        if ends {
            self.complete(qp, cx, packet, WcOpcode::Recv, total)?;
        }
        Ok(Executed::Done { psns: 1, ends })
    }

    fn on_write(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        Self::check_length(qp, packet)?;
        let info = packet.info();
        let payload = packet.payload();
        let (va, rkey, left, total) = match (self.message, packet.reth()) {
            (Message::Write { va, rkey, left, total }, _) => (va, rkey, left, total),
            (_, Some(reth)) => {
                if !qp.attr.access_flags.contains(Access::REMOTE_WRITE)
                    || u64::from(reth.dma_len) > qp.max_message
                {
                    return Err(Fault::INVALID_REQUEST);
                }
                (reth.va, reth.rkey, reth.dma_len, reth.dma_len)
            }
            (_, None) => return Err(Fault::INVALID_REQUEST),
        };
        let len = payload.len() as u32;
        let ends = info.position.is_end();
        // The last packet brings exactly what is left, every other leaves something.
        if if ends { len != left } else { len >= left } {
            return Err(Fault::INVALID_REQUEST);
        }
        if info.needs_recv_wqe && self.queue.is_empty() {
            return Ok(Executed::NotReady);
        }
        if left != 0 {
            // The whole rest is checked, so that a message that must fail writes nothing.
            let need = Access::REMOTE_WRITE;
            let pin = cx.pins.access(rkey.0, qp.accessor(), need, va, u64::from(left));
            let pin = pin.map_err(|error| refused(qp, cx.device.counters, &error))?;
            pin.write(va, payload).map_err(|error| faulted(qp, cx.device.counters, &error))?;
        }
        // An atomic addition would wait here until all that was written is in the cache.
        cx.received_writes += u64::from(info.position.is_start());
        self.message =
            Message::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, total };
        if ends && info.completes_recv_wqe {
            self.complete(qp, cx, packet, WcOpcode::RecvRdmaWithImm, u64::from(total))?;
        }
        Ok(Executed::Done { psns: 1, ends })
    }

    fn on_read(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        let Some(reth) = packet.reth() else { return Err(Fault::INVALID_REQUEST) };
        if !qp.attr.access_flags.contains(Access::REMOTE_READ)
            || u64::from(reth.dma_len) > qp.max_message
            || !self.responses.has_room()
        {
            return Err(Fault::INVALID_REQUEST);
        }
        if reth.dma_len != 0 {
            let need = Access::REMOTE_READ;
            let pin =
                cx.pins.access(reth.rkey.0, qp.accessor(), need, reth.va, u64::from(reth.dma_len));
            pin.map_err(|error| refused(qp, cx.device.counters, &error))?;
        }
        cx.device.counters.add(Counter::RdmaRecvs);
        let psns = reth.dma_len.div_ceil(qp.mtu()).max(1);
        self.responses.push_read(packet.psn(), psns, reth, qp.pd, self.msn.add(1));
        Ok(Executed::Done { psns, ends: true })
    }

    fn on_atomic(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        let Some(eth) = packet.atomic_eth() else { return Err(Fault::INVALID_REQUEST) };
        if !qp.attr.access_flags.contains(Access::REMOTE_ATOMIC)
            || !eth.va.is_multiple_of(8)
            || !self.responses.has_room()
        {
            return Err(Fault::INVALID_REQUEST);
        }
        let pin = cx.pins.access(eth.rkey.0, qp.accessor(), Access::REMOTE_ATOMIC, eth.va, 8);
        let pin = pin.map_err(|error| refused(qp, cx.device.counters, &error))?;
        let original = if packet.info().kind == Kind::CompareSwap {
            pin.compare_swap(eth.va, eth.compare, eth.swap_or_add)
        } else {
            pin.fetch_add(eth.va, eth.swap_or_add)
        };
        let original = original.map_err(|error| faulted(qp, cx.device.counters, &error))?;
        cx.device.counters.add(Counter::RdmaRecvs);
        self.responses.push_atomic(packet.psn(), original, self.msn.add(1));
        Ok(Executed::Done { psns: 1, ends: true })
    }

    /// Eight bytes, by one store (A19). The rights are those of a WRITE, as in `rxe_resp.c`.
    fn on_atomic_write(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        let (Some(reth), payload) = (packet.reth(), packet.payload()) else {
            return Err(Fault::INVALID_REQUEST);
        };
        if !qp.attr.access_flags.contains(Access::REMOTE_WRITE)
            || reth.dma_len as usize != payload.len()
            || !reth.va.is_multiple_of(8)
            || !self.responses.has_room()
        {
            return Err(Fault::INVALID_REQUEST);
        }
        let pin = cx.pins.access(reth.rkey.0, qp.accessor(), Access::REMOTE_WRITE, reth.va, 8);
        let pin = pin.map_err(|error| refused(qp, cx.device.counters, &error))?;
        pin.write_word(reth.va, payload)
            .map_err(|error| faulted(qp, cx.device.counters, &error))?;
        cx.device.counters.add(Counter::RdmaRecvs);
        self.responses.push_done(packet.psn(), self.msn.add(1));
        Ok(Executed::Done { psns: 1, ends: true })
    }

    /// Everything that was written before is in place already, since packets are executed in order;
    /// what remains is to make it seen, or lasting (A19).
    fn on_flush(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
            return Err(Fault::INVALID_REQUEST);
        };
        let Some(need) = flush_rights(feth.placement) else { return Err(Fault::INVALID_REQUEST) };
        if !qp.attr.access_flags.contains(need) || !self.responses.has_room() {
            return Err(Fault::INVALID_REQUEST);
        }
        let pin = match feth.selectivity {
            SelectivityLevel::Range => {
                let len = u64::from(reth.dma_len);
                cx.pins
                    .access(reth.rkey.0, qp.accessor(), need, reth.va, len)
                    .map(|pin| (pin, Some((reth.va, len))))
            }
            SelectivityLevel::Region => {
                cx.pins.whole(reth.rkey.0, qp.accessor(), need).map(|pin| (pin, None))
            }
            SelectivityLevel::Reserved(_) => return Err(Fault::INVALID_REQUEST),
        };
        let (pin, range) = pin.map_err(|error| refused(qp, cx.device.counters, &error))?;
        let persist = need.contains(Access::FLUSH_PERSISTENT);
        pin.flush(range, persist).map_err(|error| {
            cx.device.counters.add((&error).into());
            tracing::warn!(qp = %qp.qpn, %error, "FLUSH: the memory cannot be made persistent");
            Fault::REMOTE_OPERATION
        })?;
        cx.device.counters.add(Counter::RdmaRecvs);
        self.responses.push_done(packet.psn(), self.msn.add(1));
        Ok(Executed::Done { psns: 1, ends: true })
    }

    /// Completes the receive under way with the packet that ended its message.
    fn complete(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        packet: &PacketView<'_>,
        opcode: WcOpcode,
        byte_len: u64,
    ) -> Result<(), Fault> {
        let mut invalidated = None;
        if packet.info().has(HeaderSet::IETH)
            && let Some(ieth) = packet.ieth()
        {
            cx.pins.clear();
            let memory = cx.device.memory;
            memory.invalidate(ieth.rkey, qp.accessor(), Invalidator::Peer).map_err(|error| {
                tracing::debug!(qp = %qp.qpn, rkey = %ieth.rkey, %error, "remote invalidate refused");
                cx.device.counters.add(Counter::InvalidateRefused);
                Fault::INVALID_REQUEST
            })?;
            invalidated = Some(ieth.rkey);
        }
        let Some(wqe) = self.queue.pop() else { return Ok(()) };
        let mut completion = Completion::new(wqe.wr_id, qp.qpn, opcode, WcStatus::Success)
            .with_byte_len(u32::try_from(byte_len).unwrap_or(u32::MAX));
        completion.src_qp = qp.attr.dest_qp_num;
        if let Some(imm) = packet.imm() {
            completion = completion.with_imm(imm.data);
        }
        if let Some(rkey) = invalidated {
            completion = completion.with_invalidated(rkey);
        }
        qp.complete_recv(completion, packet.solicited(), cx);
        Ok(())
    }
}

impl ReceiveHalf for Responder {
    fn start(&mut self, qp: &QpCore) {
        self.expected_psn = qp.attr.rq_psn;
        self.msn = Msn::masked(0);
        self.message = Message::None;
        self.held = None;
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
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
    ) -> TransmitStatus {
        match self.responses.transmit(qp, cx, run) {
            Ok(sent) => sent,
            Err(fault) => {
                // In the error state already when an earlier answer is sent after a later request
                // failed.
                if qp.state != QpState::Err {
                    qp.raise(fault.event, cx);
                    qp.fatal = true;
                }
                // The NAK that tells the peer why. It reads no memory, so it cannot fail like this
                // again.
                self.responses.transmit(qp, cx, run).unwrap_or(TransmitStatus::Idle)
            }
        }
    }

    fn reset(&mut self) {
        self.queue.clear();
        self.message = Message::None;
        self.held = None;
        self.responses.clear();
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &Context<'_>) {
        self.message = Message::None;
        self.held = None;
        self.responses.keep_last_words();
        self.queue.flush(qp, cx);
    }

    fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.queue.push(request)
    }

    fn on_request(&mut self, qp: &mut QpCore, cx: &mut Context<'_>, packet: &PacketView<'_>) {
        qp.fatal |= self.take_request(qp, cx, packet) == Handled::Fatal;
    }

    /// What did not come yet may count as lost.
    fn on_timer(&mut self, cx: &Context<'_>) {
        if Held::is_due(&mut self.held, cx.now)
            && let Some(highest) = self.drop_held(cx)
        {
            self.gap = Some(Gap::new(highest, cx.now));
            self.push_sequence_nak(cx);
        }
    }

    #[inline]
    fn deadline(&self) -> Time {
        Held::deadline(self.held.as_deref())
    }
}

/// What became of the expected request.
enum Executed {
    /// It took so many PSNs; `ends`: it ended its message.
    Done { psns: u32, ends: bool },
    /// It needs a receive and none is posted.
    NotReady,
}

fn local(qp: &QpCore, fault: LocalFault) -> Fault {
    tracing::debug!(qp = %qp.qpn, %fault, "receive: local protection error");
    Fault::LOCAL_PROTECTION
}

/// What a FLUSH of this placement needs of queue pair and region; `None` if it asks for nothing
/// that there is.
fn flush_rights(placement: PlacementType) -> Option<Access> {
    let rights = [
        (PlacementType::GLOBAL_VISIBILITY, Access::FLUSH_GLOBAL),
        (PlacementType::PERSISTENCE, Access::FLUSH_PERSISTENT),
    ];
    let known = rights.iter().fold(PlacementType::empty(), |all, (bit, _)| all | *bit);
    let asked = rights.iter().filter(|(bit, _)| placement.contains(*bit));
    let need = asked.fold(Access::empty(), |need, (_, right)| need | *right);
    (known.contains(placement) && !need.is_empty()).then_some(need)
}

/// The key, or what it grants, refuses a peer's access.
fn refused(qp: &QpCore, counters: &Counters, error: &AccessError) -> Fault {
    tracing::debug!(qp = %qp.qpn, %error, "request: remote access error");
    counters.add(error.into());
    Fault::REMOTE_ACCESS
}

/// A peer's access was allowed, and could not be done.
fn faulted(qp: &QpCore, counters: &Counters, error: &urxe_memory::Fault) -> Fault {
    tracing::debug!(qp = %qp.qpn, %error, "request: remote access error");
    counters.add(error.into());
    Fault::REMOTE_ACCESS
}
