//! Queue pairs.
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
//! One queue pair is one `&mut self` state machine: packets, posts and time go in, packets go into a run, completions into the
//! completion queues. It knows no socket and no other queue pair.
//!
//! | file | subject |
//! |---|---|
//! | [`attr`] | attributes, states, types |
//! | [`transition`] | which transition takes which attributes: one table |
//! | [`wr`] | work requests as posted |
//! | `queue` | the rings they stand in |
//! | `requester` | requests: PSNs, windows, fences, wire READs |
//! | `completer` | what answers do to the requester |
//! | `recovery` | timers and retries |
//! | `responder` | requests of the peer: order, rights, execution |
//! | `responses` | answers to be sent, and kept for duplicates |
//! | `gather` | copies between packets and scatter-gather lists |

pub mod attr;
mod completer;
pub(crate) mod context;
mod gather;
mod queue;
mod recovery;
mod requester;
mod responder;
mod responses;
pub mod transition;
mod update;
pub mod wr;

use std::net::IpAddr;

use urxe_wire::{IcrcSeed, PacketView, Qpn, Service};

use self::attr::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
use self::context::{Common, Context, Sent};
use self::queue::{RecvQueue, SendQueue};
use self::requester::Requester;
use self::responder::{Handled, Responder};
use self::transition::Step;
use self::wr::{PostError, RecvRequest, SendRequest};
use crate::cq::{Cq, CqRef, QpEventType};
use crate::device::counters::Counter;
use crate::memory::PdId;
use crate::path::run::RunBuffer;
use crate::sync::Arc;
use crate::time::Time;

/// What a queue pair is made of; nothing of it changes while it lives.
#[derive(Debug)]
pub struct QpInit {
    /// Service.
    pub qp_type: QpType,
    /// Protection domain of its local buffers and of what peers may reach through it.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: Arc<Cq>,
    /// Where receives complete.
    pub recv_cq: Arc<Cq>,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// Every send makes a completion, whatever its flags say.
    pub sq_sig_all: bool,
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub common: Common,
    requester: Requester,
    responder: Responder,
    /// The path to the peer, once connected: its index on the device, and the peer's address.
    pub path: Option<(u32, IpAddr)>,
    /// The earliest entry that the device's timers hold for it.
    pub timer_at: Time,
    /// It waits in its path's list of those that the window stopped.
    pub is_blocked: bool,
    established: bool,
    drained: bool,
}

impl Qp {
    pub fn new(
        init: &QpInit,
        qpn: Qpn,
        send_cq: CqRef,
        recv_cq: CqRef,
        limits: &crate::device::Limits,
    ) -> Self {
        let QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = init.cap;
        Self {
            common: Common {
                qpn,
                qp_type: init.qp_type,
                pd: init.pd,
                state: QpState::Reset,
                attr: QpAttr { cap: init.cap, ..QpAttr::default() },
                pkey: urxe_wire::PKey::DEFAULT,
                send_cq,
                recv_cq,
                sq_sig_all: init.sq_sig_all,
                max_message: limits.max_msg_sz,
                mig_req: limits.mig_req,
                cq_overrun: false,
            },
            requester: Requester::new(SendQueue::new(max_send_wr, max_send_sge, max_inline_data)),
            responder: Responder::new(RecvQueue::new(max_recv_wr, max_recv_sge)),
            path: None,
            timer_at: Time::NEVER,
            is_blocked: false,
            established: false,
            drained: false,
        }
    }

    /// All attributes as they are.
    pub fn query(&self) -> QpAttr {
        let state = self.common.state;
        let sq_draining = state == QpState::Sqd && !self.drained;
        QpAttr { qp_state: state, cur_qp_state: state, sq_draining, ..self.common.attr }
    }

    /// Takes a transition that [`transition::plan`] allowed, with the attributes of `mask`.
    pub fn transition(&mut self, step: Step, attr: &QpAttr, mask: QpAttrMask, cx: &Context<'_>) {
        self.common.attr.update(attr, mask);
        self.common.state = step.to;
        match (step.from, step.to) {
            (_, QpState::Reset) => self.reset(cx),
            (_, QpState::Err) => self.enter_error(cx),
            (QpState::Init, QpState::Rtr) => {
                self.responder.start(&self.common);
                self.established = false;
            }
            (QpState::Rtr, QpState::Rts) => self.requester.start(&self.common),
            (QpState::Sqd, QpState::Sqd) => {
                self.responder.responses.set_depth(usize::from(self.common.attr.max_dest_rd_atomic));
            }
            (_, QpState::Sqd) => {
                self.drained = false;
                self.check_drained(cx);
            }
            _ => {}
        }
    }

    fn reset(&mut self, cx: &Context<'_>) {
        self.requester.reset(cx);
        self.responder.reset();
        let cap = self.common.attr.cap;
        self.common.attr = QpAttr { cap, ..QpAttr::default() };
        self.common.cq_overrun = false;
    }

    /// Goes to the error state and completes everything posted as flushed.
    pub fn enter_error(&mut self, cx: &Context<'_>) {
        self.common.state = QpState::Err;
        self.requester.flush(&mut self.common, cx);
        self.responder.flush(&mut self.common, cx);
    }

    /// Moves to another path; returns the former one, whose window `cx` has.
    pub fn move_to_path(&mut self, path: Option<(u32, IpAddr)>, cx: &Context<'_>) -> Option<(u32, IpAddr)> {
        self.requester.uncharge(cx);
        // The list of the old path may still name this queue pair; it will not be found there.
        self.is_blocked = false;
        std::mem::replace(&mut self.path, path)
    }

    /// Gives back what the path's window holds for this queue pair, before it is destroyed.
    pub fn release(&mut self, cx: &Context<'_>) {
        self.requester.reset(cx);
    }

    /// Queues send work requests, in order, up to the first that is refused. `Err` with its index.
    pub fn post_send(
        &mut self,
        requests: &[SendRequest<'_>],
        cx: &Context<'_>,
    ) -> Result<(), (usize, PostError)> {
        let state = self.common.state;
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err((0, PostError::State { state }));
        }
        let mut result = Ok(());
        for (index, request) in requests.iter().enumerate() {
            let no_depth = request.op.returns_data() && self.common.attr.max_rd_atomic == 0;
            let pushed = if no_depth && state != QpState::Err {
                Err(PostError::NoReadDepth)
            } else {
                self.requester.queue.push(request, self.common.max_message, self.common.sq_sig_all)
            };
            if let Err(error) = pushed {
                result = Err((index, error));
                break;
            }
        }
        if state == QpState::Err {
            self.requester.flush(&mut self.common, cx);
        }
        result
    }

    /// Queues receive work requests, in order, up to the first that is refused. `Err` with its index.
    pub fn post_recv(
        &mut self,
        requests: &[RecvRequest<'_>],
        cx: &Context<'_>,
    ) -> Result<(), (usize, PostError)> {
        let state = self.common.state;
        if state == QpState::Reset {
            return Err((0, PostError::State { state }));
        }
        let mut result = Ok(());
        for (index, request) in requests.iter().enumerate() {
            if let Err(error) = self.responder.queue.push(request) {
                result = Err((index, error));
                break;
            }
        }
        if state == QpState::Err {
            self.responder.flush(&mut self.common, cx);
        }
        result
    }

    /// Takes a packet that is addressed to this queue pair and whose ICRC holds.
    pub fn on_packet(&mut self, packet: &PacketView<'_>, cx: &mut Context<'_>) {
        let info = packet.info();
        if info.service != Service::Rc {
            return cx.counters.add(Counter::DropWrongService);
        }
        let state = self.common.state;
        let ready = match info.is_request {
            true => matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe),
            false => matches!(state, QpState::Rts | QpState::Sqd | QpState::Sqe),
        };
        if !ready {
            tracing::debug!(qp = %self.common.qpn, %state, opcode = %info.name, "dropped: QP is not in ready state");
            return cx.counters.add(Counter::DropNotReady);
        }
        if state == QpState::Rtr && !self.established {
            self.established = true;
            self.common.raise(QpEventType::CommEst, cx);
        }
        let alive = if info.is_request {
            self.responder.on_request(&mut self.common, cx, packet) == Handled::Fine
        } else {
            self.requester.on_response(&mut self.common, cx, packet).is_ok()
        };
        self.settle(alive, cx);
    }

    /// Appends packets to `run`. READ responses go first; a lone acknowledgement goes last, as the short packet that
    /// may end a run, where it costs next to nothing.
    pub fn transmit(&mut self, cx: &mut Context<'_>, run: &mut RunBuffer, icrc: &IcrcSeed) -> Sent {
        if self.responder.responses.is_only_ack() {
            let requests = self.transmit_requests(cx, run, icrc);
            if requests == Sent::RunFull {
                return requests;
            }
            match self.transmit_responses(cx, run, icrc) {
                Sent::Idle => requests,
                stop => stop,
            }
        } else {
            match self.transmit_responses(cx, run, icrc) {
                Sent::Idle => self.transmit_requests(cx, run, icrc),
                stop => stop,
            }
        }
    }

    fn transmit_responses(&mut self, cx: &mut Context<'_>, run: &mut RunBuffer, icrc: &IcrcSeed) -> Sent {
        match self.responder.responses.transmit(&self.common, cx, run, icrc) {
            Ok(sent) => sent,
            Err(fault) => {
                // In the error state already when an earlier answer is sent after a later request failed.
                if self.common.state != QpState::Err {
                    self.common.raise(fault.event, cx);
                    self.enter_error(cx);
                }
                // The NAK that tells the peer why. It reads no memory, so it cannot fail like this again.
                self.responder.responses.transmit(&self.common, cx, run, icrc).unwrap_or(Sent::Idle)
            }
        }
    }

    fn transmit_requests(&mut self, cx: &mut Context<'_>, run: &mut RunBuffer, icrc: &IcrcSeed) -> Sent {
        if !matches!(self.common.state, QpState::Rts | QpState::Sqd) {
            return Sent::Idle;
        }
        let sent = self.requester.transmit(&self.common, cx, run, icrc);
        let alive = self.requester.complete_failed(&mut self.common, cx).is_ok();
        self.settle(alive, cx);
        sent
    }

    /// Does what is due.
    pub fn on_timer(&mut self, cx: &Context<'_>) {
        if matches!(self.common.state, QpState::Rts | QpState::Sqd) {
            let alive = self.requester.on_timer(&mut self.common, cx).is_ok();
            self.settle(alive, cx);
        }
    }

    /// When it wants to be looked at again.
    pub fn deadline(&self) -> Time {
        match self.common.state {
            QpState::Rts | QpState::Sqd => self.requester.deadline(),
            _ => Time::NEVER,
        }
    }

    /// Whether there may be something to send now.
    pub fn wants_to_send(&self, now: Time) -> bool {
        !self.responder.responses.is_empty() || self.requester.may_send(now)
    }

    /// Whether there is more to send than acknowledgements, which can wait for a reply that takes them along.
    pub fn is_urgent(&self, now: Time) -> bool {
        self.is_blocked || !self.responder.responses.is_only_ack() || self.requester.may_send(now)
    }

    fn settle(&mut self, alive: bool, cx: &Context<'_>) {
        if self.common.cq_overrun {
            self.common.cq_overrun = false;
            self.common.raise(QpEventType::QpFatal, cx);
            self.enter_error(cx);
        } else if !alive {
            self.enter_error(cx);
        } else {
            self.check_drained(cx);
        }
    }

    /// SQD: the event once everything that was begun is complete (10.3.1.5).
    fn check_drained(&mut self, cx: &Context<'_>) {
        if self.common.state == QpState::Sqd && !self.drained && self.requester.is_drained() {
            self.drained = true;
            if self.common.attr.en_sqd_async_notify {
                self.common.raise(QpEventType::SqDrained, cx);
            }
        }
    }
}
