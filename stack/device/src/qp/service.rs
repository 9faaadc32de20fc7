//! A service: a half that sends and a half that receives, for the queue pairs of one type.
//!
//! [`Qp`](super::Qp) keeps what is common to all services: the state, the attributes, events,
//! draining, the path. Everything that differs by service stands behind the traits of this file.
//!
//! | trait | subject |
//! |---|---|
//! | [`SendHalf`] | the send queue: requests out, responses in |
//! | [`ReceiveHalf`] | the receives: requests in, responses out |
//! | [`TransportService`] | both together: what a packet or a turn to send needs of them |
//!
//! A half that finds that the queue pair must fail sets [`QpCore::fatal`]. The queue pair goes to
//! the error state when the call returns, and flushes both halves.

use std::net::IpAddr;

use enum_dispatch::enum_dispatch;
use urxe_wire::PacketView;

use super::attr::QpAttrMask;
use super::context::QpContext;
use super::qp_core::QpCore;
use super::recv_queue::RecvQueue;
use super::work_request::{PostError, SendRequest};
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use urxe_types::counters::Counter;
use urxe_types::time::Time;

/// What a queue pair will do next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulingHint {
    /// When it wants to be looked at again.
    pub deadline: Time,
    /// Whether there may be something to send now.
    pub wants_to_send: bool,
    /// Whether that is more than acknowledgements, which can wait for a reply that takes them
    /// along.
    pub has_data_to_send: bool,
}

/// The half of a service that sends messages. The defaults are those of an [`Absent`] half.
pub(super) trait SendHalf {
    /// RTR to RTS: the first PSN is known.
    fn start(&mut self, _qp: &QpCore) {}

    /// The attributes of `mask` changed while the queue pair lives (SQD to SQD).
    fn attributes_changed(&mut self, _qp: &QpCore, _mask: QpAttrMask) {}

    /// Forgets everything that was posted (RESET).
    fn reset(&mut self, _cx: &QpContext<'_>) {}

    /// Completes everything that was posted with "flushed" (ERR, SQE).
    fn flush(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// Returns everything charged to the path's window: the queue pair leaves the path.
    fn return_credit(&mut self, _cx: &QpContext<'_>) {}

    /// Queues a send work request, which the state and the type allow.
    fn push(&mut self, qp: &QpCore, _request: &SendRequest<'_>) -> Result<(), PostError> {
        Err(PostError::NoQueue { qp_type: qp.qp_type, queue: "send" })
    }

    /// Takes a packet that answers a request. The state allows it.
    fn on_response(&mut self, _qp: &mut QpCore, cx: &mut QpContext<'_>, _packet: &PacketView<'_>) {
        cx.device.counters.add(Counter::DropWrongService);
    }

    /// Appends requests to `run`, in whatever state.
    fn transmit(
        &mut self,
        _qp: &mut QpCore,
        _cx: &mut QpContext<'_>,
        _run: &mut RunBuffer,
    ) -> TransmitStatus {
        TransmitStatus::Idle
    }

    /// If the `posted` newest requests are all that is to be sent, and the first of them is data:
    /// what its first packet is charged.
    fn first_unsent_bytes(&self, _posted: usize) -> Option<u64> {
        None
    }

    /// Whether the message to be sent next is of several packets and the last of them so short that
    /// nothing can follow it in its run.
    fn has_short_tail(&self) -> bool {
        false
    }

    /// The path that the oldest message takes, for a service whose messages choose theirs.
    fn next_path(&self, _cx: &QpContext<'_>) -> Option<(u32, IpAddr)> {
        None
    }

    /// The path that the queue pair stood on was closed: what wanted to go there fails.
    fn on_path_closed(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// The clock says `cx.now`. In RTR, RTS or SQD.
    fn on_timer(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// When it wants to be looked at again.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// Whether [`transmit`](Self::transmit) may find something to send.
    fn wants_to_send(&self, _now: Time) -> bool {
        false
    }

    /// Whether everything that was begun is complete: what SQD waits for.
    fn is_drained(&self) -> bool {
        true
    }
}

/// The half of a service that receives messages. The defaults are those of a service without
/// responses, or of an [`Absent`] half.
pub(super) trait ReceiveHalf {
    /// INIT to RTR: the peer's first PSN is known.
    fn start(&mut self, _qp: &QpCore) {}

    /// Attributes changed while the queue pair lives (SQD to SQD).
    fn attributes_changed(&mut self, _qp: &QpCore) {}

    /// Forgets everything that was posted (RESET).
    fn reset(&mut self) {}

    /// Completes everything that was posted with "flushed" (ERR). A NAK that tells the peer why may
    /// still be sent.
    fn flush(&mut self, _qp: &mut QpCore, _cx: &QpContext<'_>) {}

    /// Where its receives come from.
    fn queue(&mut self) -> Option<&mut RecvQueue> {
        None
    }

    /// Takes a request. The state allows it.
    fn on_request(&mut self, _qp: &mut QpCore, cx: &mut QpContext<'_>, _packet: &PacketView<'_>) {
        cx.device.counters.add(Counter::DropWrongService);
    }

    /// Appends responses to `run`, in whatever state.
    fn transmit(
        &mut self,
        _qp: &mut QpCore,
        _cx: &mut QpContext<'_>,
        _run: &mut RunBuffer,
    ) -> TransmitStatus {
        TransmitStatus::Idle
    }

    /// Takes the acknowledgement out, if it is the only response.
    fn take_ack(&mut self, _qp: &QpCore) -> Option<Ack> {
        None
    }

    /// Whether there are responses to be sent.
    fn has_responses(&self) -> bool {
        false
    }

    /// Whether there is more to send than one acknowledgement.
    fn has_data_to_send(&self) -> bool {
        false
    }

    /// The clock says `cx.now`. In RTR, RTS or SQD.
    fn on_timer(&mut self, _cx: &QpContext<'_>) {}

    /// When it wants to be looked at again.
    fn deadline(&self) -> Time {
        Time::NEVER
    }
}

/// Both halves together. What happens for each packet goes to both in one call; the rest goes to
/// each half by itself.
#[enum_dispatch]
pub(super) trait TransportService {
    /// The half that sends.
    fn send_half(&mut self) -> &mut dyn SendHalf;

    /// The half that receives.
    fn receive_half(&mut self) -> &mut dyn ReceiveHalf;

    /// Takes a packet of its service. The state allows it.
    fn on_packet(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>);

    /// Appends packets to `run`, in whatever state.
    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer,
    ) -> TransmitStatus;

    /// Queues a send work request, which the state and the type allow.
    fn push_send(&mut self, qp: &QpCore, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// As [`SendHalf::first_unsent_bytes`], if there are no responses to be sent.
    fn first_unsent_bytes(&self, posted: usize) -> Option<u64>;

    /// Takes the acknowledgement out, if that is all that there is to be sent now.
    fn take_ack(&mut self, qp: &QpCore, now: Time) -> Option<Ack>;

    /// When it wants to be looked at again.
    fn deadline(&self) -> Time;

    /// Whether there may be something to send now.
    fn wants_to_send(&self, now: Time) -> bool;

    /// All that it will do next, for one call where each packet makes it.
    fn scheduling_hint(&self, now: Time) -> SchedulingHint;
}

/// A service of the halves `S` and `R`.
#[derive(Debug)]
#[repr(C)] // what packets look at stands together: the receiving half ends with its receive queue
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

    fn on_packet(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>) {
        if packet.info().is_request {
            self.receive.on_request(qp, cx, packet);
        } else {
            self.send.on_response(qp, cx, packet);
        }
    }

    /// READ responses go first; a lone acknowledgement goes last, as the short packet that may end
    /// a run, where it costs next to nothing.
    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer,
    ) -> TransmitStatus {
        if !self.receive.has_responses() {
            return self.send.transmit(qp, cx, run);
        }
        // One acknowledgement rides behind what is sent beside it; where it cannot, it goes before,
        // as it came first.
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

/// The half that a service does not have: XRC_SEND receives no messages, and XRC_RECV sends none.
#[derive(Debug)]
pub(super) struct Absent;

impl SendHalf for Absent {}
impl ReceiveHalf for Absent {}
