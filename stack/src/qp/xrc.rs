//! Extended reliable connections: a reliable connection whose two ends have one half each.
//!
//! ```text
//!   XRC_SEND                                          XRC_RECV (target), of an XRC domain
//!   requester, completer    -- requests, XRCETH -->   responder --> the domain's shared receive queues
//!                           <-- answers ----------    (their protection domains and completion queues)
//! ```
//! Every request names the shared receive queue that it is for. The target finds it in its domain,
//! and checks the message with that queue's protection domain; a number that is none of the
//! domain's is an invalid request. Everything else is what a reliable connection does, so the
//! halves are those of [`rc`](super::rc).
//!
//! Source: IBTA vol. 1, A14.

use urxe_wire::{IcrcSeed, PacketView};

use super::attr::{QpAttrMask, QpCap};
use super::context::{Common, Context, Sent};
use super::machine::Machine;
use super::queue::SendQueue;
use super::rc::requester::Requester;
use super::rc::responder::{Handled, Responder};
use super::recv_queue::RecvQueue;
use super::wr::{Destination, PostError, RecvRequest, SendRequest};
use crate::device::counters::Counter;
use crate::path::run::RunBuffer;
use crate::time::Time;

/// Numbers of shared receive queues have 24 bits.
const MAX_SRQ_NUMBER: u32 = 0x00ff_ffff;

/// The sending end.
#[derive(Debug)]
pub(super) struct XrcSend {
    requester: Requester,
}

impl XrcSend {
    pub fn new(cap: &QpCap) -> Self {
        let queue = SendQueue::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data);
        Self { requester: Requester::new(queue) }
    }
}

impl Machine for XrcSend {
    fn start_receiving(&mut self, _qp: &Common) {}

    fn start_sending(&mut self, qp: &Common) {
        self.requester.start(qp);
    }

    fn attributes_changed(&mut self, qp: &Common, mask: QpAttrMask) {
        self.requester.attributes_changed(qp, mask);
    }

    fn reset(&mut self, cx: &Context<'_>) {
        self.requester.reset(cx);
    }

    fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.flush(qp, cx);
    }

    fn flush_sends(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.flush(qp, cx);
    }

    fn uncharge(&mut self, cx: &Context<'_>) {
        self.requester.uncharge(cx);
    }

    fn push_send(&mut self, qp: &Common, request: &SendRequest<'_>) -> Result<(), PostError> {
        match request.to {
            Destination::XrcSrq { srq } if srq.0 <= MAX_SRQ_NUMBER => {
                self.requester.push(qp, request)
            }
            Destination::XrcSrq { srq } => Err(PostError::SrqNumber { given: srq.0 }),
            _ => Err(PostError::Destination { qp_type: qp.qp_type }),
        }
    }

    fn push_recv(&mut self, qp: &Common, _request: &RecvRequest<'_>) -> Result<(), PostError> {
        Err(PostError::NoQueue { qp_type: qp.qp_type, queue: "receive" })
    }

    fn on_packet(&mut self, qp: &mut Common, cx: &mut Context<'_>, packet: &PacketView<'_>) {
        if packet.info().is_request {
            return cx.counters.add(Counter::DropWrongService);
        }
        qp.fatal |= self.requester.on_response(qp, cx, packet).is_err();
    }

    fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        self.requester.transmit(qp, cx, run, icrc)
    }

    fn only_data(&self, posted: usize) -> Option<u64> {
        self.requester.only_data(posted)
    }

    fn on_timer(&mut self, qp: &mut Common, cx: &Context<'_>) {
        qp.fatal |= self.requester.on_timer(qp, cx).is_err();
    }

    fn deadline(&self) -> Time {
        self.requester.deadline()
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.requester.may_send(now)
    }

    fn is_urgent(&self, now: Time) -> bool {
        self.requester.may_send(now)
    }

    fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }
}

/// The receiving end, the target.
#[derive(Debug)]
pub(super) struct XrcRecv {
    responder: Responder,
}

impl XrcRecv {
    pub fn new(receives: RecvQueue) -> Self {
        Self { responder: Responder::new(receives) }
    }
}

impl Machine for XrcRecv {
    fn start_receiving(&mut self, qp: &Common) {
        self.responder.start(qp);
    }

    fn start_sending(&mut self, _qp: &Common) {}

    fn attributes_changed(&mut self, qp: &Common, _mask: QpAttrMask) {
        self.responder.attributes_changed(qp);
    }

    fn reset(&mut self, _cx: &Context<'_>) {
        self.responder.reset();
    }

    fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.responder.flush(qp, cx);
    }

    fn flush_sends(&mut self, _qp: &mut Common, _cx: &Context<'_>) {}

    fn uncharge(&mut self, _cx: &Context<'_>) {}

    fn push_send(&mut self, qp: &Common, _request: &SendRequest<'_>) -> Result<(), PostError> {
        Err(PostError::NoQueue { qp_type: qp.qp_type, queue: "send" })
    }

    fn push_recv(&mut self, qp: &Common, _request: &RecvRequest<'_>) -> Result<(), PostError> {
        Err(PostError::NoQueue { qp_type: qp.qp_type, queue: "receive" })
    }

    fn on_packet(&mut self, qp: &mut Common, cx: &mut Context<'_>, packet: &PacketView<'_>) {
        if !packet.info().is_request {
            return cx.counters.add(Counter::DropWrongService);
        }
        qp.fatal |= self.responder.on_request(qp, cx, packet) == Handled::Fatal;
    }

    fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        self.responder.transmit(qp, cx, run, icrc)
    }

    fn on_timer(&mut self, _qp: &mut Common, cx: &Context<'_>) {
        self.responder.on_timer(cx);
    }

    fn deadline(&self) -> Time {
        self.responder.deadline()
    }

    fn wants_to_send(&self, _now: Time) -> bool {
        self.responder.has_answers()
    }

    fn is_urgent(&self, _now: Time) -> bool {
        self.responder.is_urgent()
    }

    fn is_drained(&self) -> bool {
        true
    }
}
