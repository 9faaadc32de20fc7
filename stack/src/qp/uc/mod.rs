//! Unreliable connections: SEND and WRITE in order, whole or not at all, and nobody is told.
//!
//! | file | subject |
//! |---|---|
//! | `requester` | packets of the messages posted, at the path's pace |
//! | `responder` | packets of the peer: a gap drops the message that has it |

mod requester;
mod responder;

use urxe_wire::{IcrcSeed, PacketView};

use self::requester::Requester;
use self::responder::Responder;
use super::attr::{QpAttrMask, QpCap, QpState};
use super::context::{Common, Context, Sent};
use super::machine::Machine;
use super::queue::SendQueue;
use super::recv_queue::RecvQueue;
use super::wr::{Destination, PostError, RecvRequest, SendOp, SendRequest};
use crate::path::run::RunBuffer;
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct Uc {
    requester: Requester,
    responder: Responder,
}

impl Uc {
    pub fn new(cap: &QpCap, receives: RecvQueue) -> Self {
        Self {
            requester: Requester::new(SendQueue::new(
                cap.max_send_wr,
                cap.max_send_sge,
                cap.max_inline_data,
            )),
            responder: Responder::new(receives),
        }
    }
}

impl Machine for Uc {
    fn start_receiving(&mut self, qp: &Common) {
        self.responder.start(qp);
    }

    fn start_sending(&mut self, qp: &Common) {
        self.requester.start(qp);
    }

    fn attributes_changed(&mut self, _qp: &Common, _mask: QpAttrMask) {}

    fn reset(&mut self, _cx: &Context<'_>) {
        self.requester.reset();
        self.responder.reset();
    }

    fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.flush(qp, cx);
        self.responder.flush(qp, cx);
    }

    fn flush_sends(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.flush(qp, cx);
    }

    /// Nothing is ever charged.
    fn uncharge(&mut self, _cx: &Context<'_>) {}

    fn push_send(&mut self, qp: &Common, request: &SendRequest<'_>) -> Result<(), PostError> {
        if request.to != Destination::Peer {
            return Err(PostError::Destination { qp_type: qp.qp_type });
        }
        match request.op {
            SendOp::Send
            | SendOp::SendImm { .. }
            | SendOp::Write { .. }
            | SendOp::WriteImm { .. } => self.requester.push(qp, request),
            op if op.is_local() => self.requester.push(qp, request),
            _ => Err(PostError::Unsupported { qp_type: qp.qp_type }),
        }
    }

    fn push_recv(&mut self, _qp: &Common, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.responder.queue.push(request)
    }

    fn on_packet(&mut self, qp: &mut Common, cx: &mut Context<'_>, packet: &PacketView<'_>) {
        self.responder.on_request(qp, cx, packet);
    }

    fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
            return Sent::Idle;
        }
        self.requester.transmit(qp, cx, run, icrc)
    }

    fn on_timer(&mut self, _qp: &mut Common, cx: &Context<'_>) {
        self.requester.on_timer(cx.now);
    }

    fn deadline(&self) -> Time {
        self.requester.deadline()
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.requester.wants_to_send(now)
    }

    fn is_urgent(&self, now: Time) -> bool {
        self.requester.wants_to_send(now)
    }

    fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }
}
