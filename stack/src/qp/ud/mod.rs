//! Unreliable datagrams: messages of one packet, each to whom its work request says, from anybody
//! who knows the Q_Key.
//!
//! | file | subject |
//! |---|---|
//! | `requester` | each message to its address handle |
//! | `responder` | Q_Key, receive, network header, payload |
//! | [`network_header`] | the 40 bytes in front of a received datagram |
//!
//! A datagram queue pair belongs to no path: it stands on the path of its oldest message, and goes
//! on to the next one's. The queue pair of management datagrams (QP1) is one with a well-known
//! number and Q_Key.

pub mod network_header;
mod requester;
mod responder;

use std::net::IpAddr;

use urxe_wire::{IcrcSeed, PacketView, QKey};

use self::requester::Requester;
use self::responder::Responder;
use super::attr::{QpAttrMask, QpCap, QpState, QpType};
use super::context::{Common, Context, Sent};
use super::machine::Machine;
use super::queue::SendQueue;
use super::recv_queue::RecvQueue;
use super::wr::{Destination, PostError, RecvRequest, SendOp, SendRequest};
use crate::path::run::RunBuffer;
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct Ud {
    requester: Requester,
    responder: Responder,
}

impl Ud {
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

/// The queue pair's own Q_Key.
fn own_qkey(qp: &Common) -> QKey {
    if qp.qp_type == QpType::Gsi { QKey::GSI } else { qp.attr.qkey }
}

impl Machine for Ud {
    fn start_receiving(&mut self, _qp: &Common) {}

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
        let qp_type = qp.qp_type;
        if !matches!(request.to, Destination::Datagram { .. }) {
            return Err(PostError::Destination { qp_type });
        }
        if !matches!(request.op, SendOp::Send | SendOp::SendImm { .. }) {
            return Err(PostError::Unsupported { qp_type });
        }
        self.requester.push(qp, request)
    }

    fn push_recv(&mut self, _qp: &Common, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.responder.queue.push(request)
    }

    fn on_packet(&mut self, qp: &mut Common, cx: &mut Context<'_>, packet: &PacketView<'_>) {
        self.responder.on_datagram(qp, cx, packet);
    }

    fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        if qp.state != QpState::Rts {
            return Sent::Idle;
        }
        self.requester.transmit(qp, cx, run, icrc)
    }

    fn next_path(&self, cx: &Context<'_>) -> Option<(u32, IpAddr)> {
        self.requester.next_path(cx)
    }

    fn on_path_closed(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.requester.on_path_closed(qp, cx);
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

    /// A message is sent whole, so none is ever under way.
    fn is_drained(&self) -> bool {
        true
    }
}
