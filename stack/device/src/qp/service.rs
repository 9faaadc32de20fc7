//! The traits of a transport service: one half sends messages, the other receives them.
//!
//! [`Qp`](super::Qp) holds the parts that all services share: state, attributes, events, draining
//! and the path. The traits of this file hold the parts that differ.
//!
//! | trait | subject |
//! |---|---|
//! | [`SendHalf`] | the send queue: requests out, responses in |
//! | [`ReceiveHalf`] | the receives: requests in, responses out |
//! | [`TransportService`] | both halves: the calls for each packet and each turn to send |
//!
//! A half that finds that the queue pair must fail sets [`QpCore::fatal`]. The queue pair moves to
//! the error state when the call returns, and flushes both halves.

use std::net::IpAddr;
use std::ops::Range;

use enum_dispatch::enum_dispatch;
use urxe_wire::PacketView;

use super::attr::QpAttrMask;
use super::context::QpContext;
use super::origin::PsnMatch;
use super::qp_core::QpCore;
use super::recv_queue::RecvQueue;
use super::work_request::{PostError, SendRequest};
use crate::cq::PolledSends;
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use urxe_types::allocate::OutOfMemory;
use urxe_types::counters::Counter;
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// The next action of a queue pair, for the scheduler of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulingHint {
    /// The time of the next timer.
    pub deadline: Time,
    /// The queue pair may have something to send now.
    pub wants_to_send: bool,
    /// The queue pair may have more to send than ACKs. An ACK alone can wait for a packet that
    /// carries it along.
    pub has_data_to_send: bool,
}

/// The half of a service that sends messages. The defaults are those of an [`Absent`] half.
pub(super) trait SendHalf {
    /// Makes room for `_reads` READs and atomics that may be outstanding.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn reserve(&mut self, _reads: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Handles RTR to RTS. The first PSN is known then.
    fn start(&mut self, _qp: &QpCore) {}

    /// Handles a change of the attributes in `mask` in SQD.
    fn attributes_changed(&mut self, _qp: &QpCore, _mask: QpAttrMask) {}

    /// Drops all posted work requests (RESET).
    fn reset(&mut self, _cx: &QpContext<'_>) {}

    /// Completes all posted work requests as flushed (ERR, SQE).
    fn flush(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// Returns all credit to the window of the path, because the queue pair leaves the path.
    fn return_credit(&mut self, _cx: &QpContext<'_>) {}

    /// Queues a send work request. The caller has checked the state and the type of the queue pair.
    fn push(&mut self, qp: &QpCore, _request: &SendRequest<'_>) -> Result<(), PostError> {
        Err(PostError::NoQueue { qp_type: qp.qp_type, queue: "send" })
    }

    /// Returns the relation of a response's PSN to the requests. Services without a check of PSNs
    /// expect each packet.
    fn psn_match(&self, _packet: &PacketView<'_>) -> PsnMatch {
        PsnMatch::Expected
    }

    /// Handles a response packet. The caller has checked the state.
    fn on_response(&mut self, _qp: &mut QpCore, cx: &mut QpContext<'_>, _packet: &PacketView<'_>) {
        cx.device.counters.add(Counter::DropWrongService);
    }

    /// Appends requests to `run`. The caller does not check the state.
    fn transmit(
        &mut self,
        _qp: &mut QpCore,
        _cx: &mut QpContext<'_>,
        _run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        TransmitStatus::Idle
    }

    /// Returns the bytes of credit that the first packet of the newest `posted` requests takes.
    /// Returns `None` if there is more to send, or if the first of them is no SEND or WRITE.
    fn first_unsent_bytes(&self, _posted: usize) -> Option<u64> {
        None
    }

    /// Returns whether the next message has several packets and a short last one. No packet can
    /// follow a short packet in its run.
    fn has_short_tail(&self) -> bool {
        false
    }

    /// Returns the path of the oldest message, for services in which each message names its path.
    fn next_path(&self, _cx: &QpContext<'_>) -> Option<(u32, IpAddr)> {
        None
    }

    /// Handles the closing of the queue pair's path: messages for that path fail.
    fn on_path_closed(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// Handles the timers that are due at `cx.now`. Called in RTR, RTS and SQD.
    fn on_timer(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// Returns the time of the next timer.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// Returns whether [`transmit`](Self::transmit) may find something to send.
    fn wants_to_send(&self, _now: Time) -> bool {
        false
    }

    /// Returns whether all messages that were begun are complete, as SQD requires.
    fn is_drained(&self) -> bool {
        true
    }

    /// Keeps the entries of the send queue in use until their completions are polled.
    fn make_strict(&mut self, _polled: Arc<PolledSends>) {}

    /// Returns the positions of the send work requests that are posted and not complete.
    fn posted(&self) -> Range<u64> {
        0..0
    }
}

/// The half of a service that receives messages. The defaults are those of a service without
/// responses, or of an [`Absent`] half.
pub(super) trait ReceiveHalf {
    /// Makes room for the responses to `_depth` READs and atomics of the peer.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn reserve(&mut self, _depth: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Handles INIT to RTR. The first PSN of the peer is known then.
    fn start(&mut self, _qp: &QpCore) {}

    /// Handles a change of attributes in SQD.
    fn attributes_changed(&mut self, _qp: &QpCore) {}

    /// Drops all posted work requests (RESET).
    fn reset(&mut self) {}

    /// Completes all posted work requests as flushed (ERR). A NAK that reports the failure to the
    /// peer may still be sent.
    fn flush(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// Returns the source of receives.
    fn queue(&mut self) -> Option<&mut RecvQueue> {
        None
    }

    /// Returns the relation of a request's PSN to the expected one. Services without a check of
    /// PSNs expect each packet.
    fn psn_match(&self, _packet: &PacketView<'_>) -> PsnMatch {
        PsnMatch::Expected
    }

    /// Handles a request packet. The caller has checked the state.
    fn on_request(&mut self, _qp: &mut QpCore, cx: &mut QpContext<'_>, _packet: &PacketView<'_>) {
        cx.device.counters.add(Counter::DropWrongService);
    }

    /// Appends responses to `run`. The caller does not check the state.
    fn transmit(
        &mut self,
        _qp: &mut QpCore,
        _cx: &mut QpContext<'_>,
        _run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        TransmitStatus::Idle
    }

    /// Takes the pending ACK, if that is the only response.
    fn take_ack(&mut self, _qp: &QpCore) -> Option<Ack> {
        None
    }

    /// Returns whether there are responses to send.
    fn has_responses(&self) -> bool {
        false
    }

    /// Returns whether there is more to send than one ACK.
    fn has_data_to_send(&self) -> bool {
        false
    }

    /// Handles the timers that are due at `cx.now`. Called in RTR, RTS and SQD.
    fn on_timer(&mut self, _cx: &QpContext<'_>) {}

    /// Returns the time of the next timer, [`resume_at`](Self::resume_at) included.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// Returns the time at which the pacer admits responses again, or [`Time::NEVER`]. Responses
    /// are sent in ERR as well.
    fn resume_at(&self) -> Time {
        Time::NEVER
    }

    /// Ends the pause of the pacer if it is over at `now`.
    fn resume(&mut self, _now: Time) {}
}

/// Both halves of a service. Calls that each packet makes go to both halves at once. All other
/// calls go to one half by `send_half` or `receive_half`.
#[enum_dispatch]
pub(super) trait TransportService {
    /// Returns the half that sends.
    fn send_half(&mut self) -> &mut dyn SendHalf;

    /// Returns the half that receives.
    fn receive_half(&mut self) -> &mut dyn ReceiveHalf;

    /// Returns the relation of a packet's PSN to the state of the half that handles it.
    fn psn_match(&self, packet: &PacketView<'_>) -> PsnMatch;

    /// Handles a packet of this service. The caller has checked the state.
    fn on_packet(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>);

    /// Appends packets to `run`. The caller does not check the state.
    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus;

    /// Queues a send work request. The caller has checked the state and the type of the queue pair.
    fn push_send(&mut self, qp: &QpCore, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// As [`SendHalf::first_unsent_bytes`]; `None` if there are responses to send.
    fn first_unsent_bytes(&self, posted: usize) -> Option<u64>;

    /// Takes the pending ACK, if there is nothing else to send now.
    fn take_ack(&mut self, qp: &QpCore, now: Time) -> Option<Ack>;

    /// Returns the time of the next timer.
    fn deadline(&self) -> Time;

    /// As [`ReceiveHalf::resume_at`].
    fn resume_at(&self) -> Time;

    /// Returns whether there may be something to send at `now`.
    fn wants_to_send(&self, now: Time) -> bool;

    /// Returns the deadline and what there is to send, in one call because each packet makes it.
    fn scheduling_hint(&self, now: Time) -> SchedulingHint;
}

/// A service of the halves `S` and `R`.
#[derive(Debug)]
#[repr(C)] // packets read adjacent fields: the receive queue is the last
pub(super) struct Service<S, R> {
    send: S,
    receive: R,
}

impl<S, R> Service<S, R> {
    pub fn new(send: S, receive: R) -> Self {
        Self { send, receive }
    }
}

impl<S: SendHalf, R: ReceiveHalf> TransportService for Service<S, R> {
    fn send_half(&mut self) -> &mut dyn SendHalf {
        &mut self.send
    }

    fn receive_half(&mut self) -> &mut dyn ReceiveHalf {
        &mut self.receive
    }

    fn psn_match(&self, packet: &PacketView<'_>) -> PsnMatch {
        match packet.info().is_request {
            true => self.receive.psn_match(packet),
            false => self.send.psn_match(packet),
        }
    }

    fn on_packet(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>) {
        if packet.info().is_request {
            self.receive.on_request(qp, cx, packet);
        } else {
            self.send.on_response(qp, cx, packet);
        }
    }

    /// Appends READ responses before requests, and a lone ACK after them. The ACK is shorter than
    /// the requests and may end the run; behind them it costs almost nothing.
    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        if !self.receive.has_responses() {
            return self.send.transmit(qp, cx, run);
        }
        // A lone ACK follows the requests if it can. Otherwise it is sent first, because it was due
        // first.
        let rides_behind = !(run.is_empty() && self.send.has_short_tail());
        if self.receive.has_data_to_send() || !rides_behind {
            return match self.receive.transmit(qp, cx, run) {
                TransmitStatus::Idle => self.send.transmit(qp, cx, run),
                stop => stop,
            };
        }
        let requests = self.send.transmit(qp, cx, run);
        if matches!(requests, TransmitStatus::RunFull | TransmitStatus::WouldEndRun) {
            return requests;
        }
        match self.receive.transmit(qp, cx, run) {
            TransmitStatus::Idle => requests,
            stop => stop,
        }
    }

    fn push_send(&mut self, qp: &QpCore, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.send.push(qp, request)
    }

    fn first_unsent_bytes(&self, posted: usize) -> Option<u64> {
        if self.receive.has_responses() { None } else { self.send.first_unsent_bytes(posted) }
    }

    #[inline(always)]
    fn take_ack(&mut self, qp: &QpCore, now: Time) -> Option<Ack> {
        if self.send.wants_to_send(now) { None } else { self.receive.take_ack(qp) }
    }

    #[inline]
    fn deadline(&self) -> Time {
        self.send.deadline().min(self.receive.deadline())
    }

    fn resume_at(&self) -> Time {
        self.receive.resume_at()
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.receive.has_responses() || self.send.wants_to_send(now)
    }

    #[inline(always)]
    fn scheduling_hint(&self, now: Time) -> SchedulingHint {
        let (requests, responses) = (self.send.wants_to_send(now), self.receive.has_responses());
        SchedulingHint {
            deadline: self.deadline(),
            wants_to_send: requests || responses,
            has_data_to_send: requests || (responses && self.receive.has_data_to_send()),
        }
    }
}

/// The half that a service does not have. XRC_SEND receives no messages, and XRC_RECV sends none.
#[derive(Debug)]
pub(super) struct Absent;

impl SendHalf for Absent {}
impl ReceiveHalf for Absent {}
