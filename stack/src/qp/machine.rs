//! What a service (RC, UC, UD, …) has to do for a queue pair of its type.
//!
//! [`Qp`](super::Qp) keeps what is common: the state, the attributes, events, draining, the path.
//! Everything that differs by service stands behind this trait. A machine that finds that the queue
//! pair must fail says so by [`Common::fatal`]; the queue pair goes to the error state when the
//! call returns, and calls [`Machine::flush`].

use std::fmt::Debug;
use std::net::IpAddr;

use enum_dispatch::enum_dispatch;
use urxe_wire::{IcrcSeed, PacketView};

use super::attr::{QpAttrMask, QpCap, QpType};
use super::context::{Common, Context, Sent};
use super::rc::Rc;
use super::recv_queue::RecvQueue;
use super::uc::Uc;
use super::ud::Ud;
use super::wr::{PostError, RecvRequest, SendRequest};
use super::xrc::{XrcRecv, XrcSend};
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::time::Time;

/// What a queue pair will do next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// When it wants to be looked at again.
    pub deadline: Time,
    /// Whether there may be something to send now.
    pub wants_to_send: bool,
    /// Whether that is more than acknowledgements.
    pub is_urgent: bool,
}

/// See the module.
#[enum_dispatch]
pub(super) trait Machine: Debug + Send {
    /// INIT to RTR: what the peer will send is known.
    fn start_receiving(&mut self, qp: &Common);

    /// RTR to RTS: what will be sent is known.
    fn start_sending(&mut self, qp: &Common);

    /// The attributes of `mask` changed while the queue pair lives (SQD to SQD).
    fn attributes_changed(&mut self, qp: &Common, mask: QpAttrMask);

    /// Forgets everything that was posted (RESET).
    fn reset(&mut self, cx: &Context<'_>);

    /// Completes everything that was posted with "flushed" (ERR). What tells the peer why may still
    /// be sent.
    fn flush(&mut self, qp: &mut Common, cx: &Context<'_>);

    /// Completes every send that was posted with "flushed" (SQE); receives stay.
    fn flush_sends(&mut self, qp: &mut Common, cx: &Context<'_>);

    /// Gives everything charged back to the path's window: the queue pair leaves the path.
    fn uncharge(&mut self, cx: &Context<'_>);

    /// Queues a send work request. The state allows it.
    fn push_send(&mut self, qp: &Common, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// Queues a receive work request. The state allows it.
    fn push_recv(&mut self, qp: &Common, request: &RecvRequest<'_>) -> Result<(), PostError>;

    /// Takes a packet of its service. The state allows it.
    fn on_packet(&mut self, qp: &mut Common, cx: &mut Context<'_>, packet: &PacketView<'_>);

    /// Appends packets to `run`, in whatever state.
    fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent;

    /// If the `posted` newest requests are all that is to be sent, and the first of them is data:
    /// what its first packet is charged.
    fn only_data(&self, _posted: usize) -> Option<u64> {
        None
    }

    /// Takes the acknowledgement out, if that is all that there is to be sent now.
    fn take_ack(&mut self, _qp: &Common, _now: Time) -> Option<Ack> {
        None
    }

    /// The path that the oldest message takes, for a service whose messages choose theirs.
    fn next_path(&self, _cx: &Context<'_>) -> Option<(u32, IpAddr)> {
        None
    }

    /// The path that the queue pair stood on was closed: what wanted to go there fails.
    fn on_path_closed(&mut self, _qp: &mut Common, _cx: &Context<'_>) {}

    /// Does what is due. In RTR, RTS or SQD.
    fn on_timer(&mut self, qp: &mut Common, cx: &Context<'_>);

    /// When it wants to be looked at again.
    fn deadline(&self) -> Time;

    /// Whether there may be something to send now.
    fn wants_to_send(&self, now: Time) -> bool;

    /// Whether there is more to send than acknowledgements, which can wait for a reply that takes
    /// them along.
    fn is_urgent(&self, now: Time) -> bool;

    /// The last three at once, for one call where each packet makes it.
    fn outlook(&self, now: Time) -> Outlook {
        Outlook {
            deadline: self.deadline(),
            wants_to_send: self.wants_to_send(now),
            is_urgent: self.is_urgent(now),
        }
    }

    /// Whether everything that was begun is complete: what SQD waits for.
    fn is_drained(&self) -> bool;
}

/// The machine of a queue pair, in place: a packet finds all of a queue pair in one piece of
/// memory.
#[enum_dispatch(Machine)]
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "the largest, a reliable connection's, is the one that most are"
)]
pub(super) enum AnyMachine {
    Rc,
    Uc,
    Ud,
    XrcSend,
    XrcRecv,
}

impl AnyMachine {
    /// The machine of a queue pair's type.
    pub fn new(qp_type: QpType, cap: &QpCap, receives: RecvQueue) -> Self {
        match qp_type {
            QpType::Ud | QpType::Gsi => Ud::new(cap, receives).into(),
            QpType::Uc => Uc::new(cap, receives).into(),
            QpType::XrcSend => XrcSend::new(cap).into(),
            QpType::XrcRecv => XrcRecv::new(receives).into(),
            QpType::Rc => Rc::new(cap, receives).into(),
        }
    }
}
