//! Reliable connections.
//!
//! ```text
//!             post_send                        post_recv
//!                 |                                |
//!   +-------------v------------+    +--------------v-----------+
//!   | requester  (send queue)  |    | responder (receive queue)|
//!   | completer  (answers)     |    | responses (to be sent)   |
//!   +------^-----------|-------+    +------^------------|------+
//!     answers       requests            requests     answers
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `requester` | requests: PSNs, windows, fences, wire READs |
//! | `completer` | what answers do to the requester |
//! | `recovery` | timers and retries |
//! | `held` | packets that came before their turn, until that comes |
//! | `gap` | when to ask again for what did not come |
//! | `responder` | requests of the peer: order, rights, execution |
//! | `responses` | answers to be sent, and kept for duplicates |

mod completer;
mod gap;
mod held;
mod recovery;
pub(super) mod requester;
pub(super) mod responder;
mod responses;

use urxe_wire::{IcrcSeed, PacketView};

use self::requester::Requester;
use self::responder::{Handled, Responder};
use super::attr::{QpAttrMask, QpCap};
use super::context::{Common, Context, Sent};
use super::machine::{Machine, Outlook};
use super::queue::SendQueue;
use super::recv_queue::RecvQueue;
use super::wr::{Destination, PostError, RecvRequest, SendRequest};
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::time::Time;

/// See the module.
#[derive(Debug)]
#[repr(C)] // the ends that packets look at stand next to each other: the responder's end is its receive queue
pub(super) struct Rc {
    requester: Requester,
    responder: Responder,
}

impl Rc {
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

impl Machine for Rc {
    fn start_receiving(&mut self, qp: &Common) {
        self.responder.start(qp);
    }

    fn start_sending(&mut self, qp: &Common) {
        self.requester.start(qp);
    }

    fn attributes_changed(&mut self, qp: &Common, mask: QpAttrMask) {
        self.requester.attributes_changed(qp, mask);
        self.responder.attributes_changed(qp);
    }

    fn reset(&mut self, cx: &Context<'_>) {
        self.requester.reset(cx);
        self.responder.reset();
    }

    fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.flush(qp, cx);
        self.responder.flush(qp, cx);
    }

    fn flush_sends(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.flush(qp, cx);
    }

    fn uncharge(&mut self, cx: &Context<'_>) {
        self.requester.uncharge(cx);
    }

    fn push_send(&mut self, qp: &Common, request: &SendRequest<'_>) -> Result<(), PostError> {
        if request.to != Destination::Peer {
            return Err(PostError::Destination { qp_type: qp.qp_type });
        }
        self.requester.push(qp, request)
    }

    fn push_recv(&mut self, _qp: &Common, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.responder.queue.push(request)
    }

    fn on_packet(&mut self, qp: &mut Common, cx: &mut Context<'_>, packet: &PacketView<'_>) {
        qp.fatal |= if packet.info().is_request {
            self.responder.on_request(qp, cx, packet) == Handled::Fatal
        } else {
            self.requester.on_response(qp, cx, packet).is_err()
        };
    }

    /// READ responses go first; a lone acknowledgement goes last, as the short packet that may end
    /// a run, where it costs next to nothing.
    fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        if !self.responder.has_answers() {
            return self.requester.transmit(qp, cx, run, icrc);
        }
        // One acknowledgement rides behind what is sent beside it; where it cannot, it goes before,
        // as it came first.
        let rides_behind = !(run.is_empty() && self.requester.ends_short());
        if !self.responder.is_urgent() && rides_behind {
            let requests = self.requester.transmit(qp, cx, run, icrc);
            if matches!(requests, Sent::RunFull | Sent::Aside) {
                return requests;
            }
            match self.responder.transmit(qp, cx, run, icrc) {
                Sent::Idle => requests,
                stop => stop,
            }
        } else {
            match self.responder.transmit(qp, cx, run, icrc) {
                Sent::Idle => self.requester.transmit(qp, cx, run, icrc),
                stop => stop,
            }
        }
    }

    fn only_data(&self, posted: usize) -> Option<u64> {
        if self.responder.has_answers() { None } else { self.requester.only_data(posted) }
    }

    #[inline(always)]
    fn take_ack(&mut self, qp: &Common, now: Time) -> Option<Ack> {
        if self.requester.may_send(now) { None } else { self.responder.take_ack(qp) }
    }

    fn on_timer(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.responder.on_timer(cx);
        qp.fatal |= self.requester.on_timer(qp, cx).is_err();
    }

    #[inline]
    fn deadline(&self) -> Time {
        self.requester.deadline().min(self.responder.deadline())
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.responder.has_answers() || self.requester.may_send(now)
    }

    fn is_urgent(&self, now: Time) -> bool {
        self.responder.is_urgent() || self.requester.may_send(now)
    }

    #[inline(always)]
    fn outlook(&self, now: Time) -> Outlook {
        let (requests, answers) = (self.requester.may_send(now), self.responder.has_answers());
        Outlook {
            deadline: self.deadline(),
            wants_to_send: requests || answers,
            is_urgent: requests || (answers && self.responder.is_urgent()),
        }
    }

    fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }
}
