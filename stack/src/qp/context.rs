//! What requester and responder need from outside while they handle packets: the surroundings of one call.

use crate::cq::{AsyncEvent, AsyncEvents, Completion, CqRef, QpEventType};
use crate::device::counters::Counters;
use crate::memory::{Memory, PdId, Pins};
use crate::path::pace::Pace;
use crate::path::window::Window;
use crate::time::Time;
use urxe_wire::{PKey, Qpn};

use super::attr::{QpAttr, QpState, QpType};

/// The surroundings of one call into a queue pair: borrowed for a run, never for a message.
pub(crate) struct Context<'a> {
    pub now: Time,
    pub pins: Pins<'a>,
    pub memory: &'a Memory,
    pub counters: &'a Counters,
    pub events: &'a AsyncEvents,
    /// The window of the path to the queue pair's peer.
    pub window: &'a Window,
    /// The pace of that path.
    pub pace: &'a Pace,
}

/// What requester and responder share and do not own.
#[derive(Debug)]
pub(crate) struct Common {
    pub qpn: Qpn,
    pub qp_type: QpType,
    pub pd: PdId,
    /// Protection domain of receive buffers: the shared receive queue's, if there is one.
    pub recv_pd: PdId,
    /// Its receives come from a shared receive queue.
    pub has_srq: bool,
    pub state: QpState,
    pub attr: QpAttr,
    pub pkey: PKey,
    pub send_cq: CqRef,
    pub recv_cq: CqRef,
    pub sq_sig_all: bool,
    /// The longest message, in bytes.
    pub max_message: u64,
    /// Set M (migrated) in packets, which some NICs want and the kernel's `rdma_rxe` leaves clear.
    pub mig_req: bool,
    /// A completion found its queue full: the queue pair must fail.
    pub cq_overrun: bool,
    /// Its machine found that the queue pair must fail; what the program has to be told, it was told.
    pub fatal: bool,
    /// Its machine found that it can send no more (SQE); receiving goes on.
    pub send_failed: bool,
}

impl Common {
    /// Path MTU in bytes.
    pub fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes() as u32
    }

    /// The local ACK timeout in nanoseconds, `None` when it is off.
    pub fn timeout_ns(&self) -> Option<u64> {
        (self.attr.timeout != 0).then(|| 4096 << (self.attr.timeout & 31))
    }

    pub fn complete_send(&mut self, mut completion: Completion, cx: &Context<'_>) {
        completion.timestamp_ns = cx.now.as_ns();
        self.cq_overrun |= self.send_cq.cq().push(completion, false).is_err();
    }

    pub fn complete_recv(&mut self, mut completion: Completion, solicited: bool, cx: &Context<'_>) {
        completion.timestamp_ns = cx.now.as_ns();
        self.cq_overrun |= self.recv_cq.cq().push(completion, solicited).is_err();
    }

    pub fn raise(&self, event: QpEventType, cx: &Context<'_>) {
        cx.events.push(AsyncEvent::Qp(event, self.qpn));
    }
}

/// Why a queue pair's [`transmit`](super::Qp::transmit) returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It has nothing more to send now; an event will list it again.
    Idle,
    /// Its next packet does not fit the run: send that, then ask again.
    RunFull,
    /// Its next packet must wait for the path's window.
    WindowFull,
}
