//! What a call into a queue pair gets from outside, and what all queue pairs have in common.
//!
//! ```text
//!   part of Context     is provided by               lasts for
//!   ------------------  ---------------------------  ----------------------------------------
//!   device              the device                   the device's life
//!   path, path_index    the device's table           the queue pairs of one path in turn
//!   now                 the caller                   the call into the device
//!   arrival             the port                     one packet that is received
//!   turn                the scheduler of the path    one queue pair's turn to send
//!   pins, charges,      the queue pairs themselves   the packets of the call, until settled
//!   carried, *_writes                                and dropped
//! ```

use crate::ah_table::AhTable;
use crate::cq::{AsyncEvent, AsyncEvents, Completion, CqRef, QpEventType};
use crate::path::Path;
use crate::path::charges::Charges;
use crate::path::run::RunBuffer;
use crate::path::scheduler::{TransmitStatus, TurnRules};
use crate::srq::Srq;
use crate::srq::table::SrqTable;
use crate::srq::xrcd::XrcdRef;
use urxe_memory::{Accessor, Memory, PdId, Pins};
use urxe_types::counters::{Counter, Counters};
use urxe_types::limits::Limits;
use urxe_types::sync::Arc;
use urxe_types::time::Time;
use urxe_wire::network_header::Arrival;
use urxe_wire::{Opcode, PKey, Qpn};

use super::attr::{QpAttr, QpCap, QpState, QpType};
use super::completions::Carried;

/// The surroundings of one call into a queue pair: borrowed for a run, never for a message.
pub(crate) struct Context<'a> {
    pub now: Time,
    pub device: DeviceParts<'a>,
    /// The path to the queue pair's peer; some path for a queue pair without one, which sends
    /// nothing.
    pub path: &'a Path,
    /// Which path that is.
    pub path_index: u32,
    /// While a packet is received: where it came from.
    pub arrival: Option<Arrival>,
    /// While packets are sent: what the queue pair may do in its turn.
    pub turn: TurnRules,
    // What follows is kept from one packet of the call to the next, and done once for all of them.
    // It is no struct of its own because contexts are made in place: a part of this size would be
    // copied into each.
    pub pins: Pins<'a>,
    /// What the path's window is still to be told.
    pub charges: Charges,
    /// While acknowledgements of many queue pairs are taken: the completion queue that most report
    /// to.
    pub carried: Carried<'a>,
    /// WRITEs that began while packets were sent, not counted yet.
    pub sent_writes: u64,
    /// WRITEs that began while packets were received, not counted yet.
    pub received_writes: u64,
}

/// The parts of the device that queue pairs use.
#[derive(Clone, Copy)]
pub(crate) struct DeviceParts<'a> {
    pub memory: &'a Memory,
    pub counters: &'a Counters,
    pub events: &'a AsyncEvents,
    pub srqs: &'a SrqTable,
    /// Where datagrams go.
    pub ahs: &'a AhTable,
}

impl Context<'_> {
    /// Releases pins and the completion queue. The caller is about to wait for a queue pair, and
    /// the thread that has it may wait for them.
    #[inline]
    pub fn release_locks(&mut self) {
        self.pins.clear();
        self.carried.let_go();
    }

    /// Why a packet of `len` bytes does not join `run` now, if it does not.
    #[inline]
    pub fn rejects(&self, run: &RunBuffer, len: usize) -> Option<TransmitStatus> {
        if !run.takes(len) {
            return Some(TransmitStatus::RunFull);
        }
        (!self.turn.may_end_run && run.closes_with(len)).then_some(TransmitStatus::WouldEndRun)
    }

    /// Whether the path's window has room for `bytes` more.
    #[inline]
    pub fn has_credit(&self, bytes: u64) -> bool {
        self.charges.admit(&self.path.window, bytes)
    }

    /// Tells the path's window and the counters what they were not told.
    #[inline(always)] // in place, as most often there is nothing to tell
    pub fn settle(&mut self) {
        self.charges.settle(&self.path.window, self.now);
        let writes = [
            (Counter::RdmaSends, &mut self.sent_writes),
            (Counter::RdmaRecvs, &mut self.received_writes),
        ];
        for (counter, writes) in writes {
            match std::mem::take(writes) {
                0 => {}
                writes => self.device.counters.add_many(counter, writes),
            }
        }
    }
}

/// What requester and responder share and do not own.
#[derive(Debug)]
#[repr(C)] // what each packet looks at stands together, up to the first attributes
pub(crate) struct QpCore {
    pub qpn: Qpn,
    pub pd: PdId,
    /// The longest message, in bytes.
    pub max_message: u64,
    /// Where sends complete, if it sends.
    pub send_cq: Option<CqRef>,
    pub pkey: PKey,
    pub qp_type: QpType,
    pub state: QpState,
    /// Its receives come from a shared receive queue.
    pub has_srq: bool,
    pub sq_sig_all: bool,
    /// Set M (migrated) in packets, which some NICs want and the kernel's `rdma_rxe` leaves clear.
    pub mig_req: bool,
    /// A completion found its queue full: the queue pair must fail.
    pub cq_overrun: bool,
    /// Its machine found that the queue pair must fail; what the program has to be told, it was
    /// told.
    pub fatal: bool,
    /// Its machine found that it can send no more (SQE); receiving goes on.
    pub send_failed: bool,
    pub attr: QpAttr,
    /// What an XRC target has instead of a protection domain and a completion queue.
    pub xrc: Option<XrcTarget>,
    /// Where receives complete, if it receives and is no XRC target.
    pub recv_cq: Option<CqRef>,
    /// That domain, or the parent domain of it that the queue pair was made with.
    pub made_with: PdId,
    /// Protection domain of receive buffers: the shared receive queue's, if there is one.
    pub recv_pd: PdId,
    /// The peer is not told of congestion before.
    pub may_notify_at: Time,
}

/// An XRC target's domain, and the queue that the message under way names. That queue's protection
/// domain and completion queue are the queue pair's as long as the message lasts (A14).
#[derive(Debug)]
pub(crate) struct XrcTarget {
    pub xrcd: XrcdRef,
    pub srq: Option<Arc<Srq>>,
    /// How often it is open (`ibv_open_qp`): it goes when it was destroyed as often.
    pub opens: u32,
}

impl QpCore {
    /// In RESET, reporting nowhere.
    pub fn new(qpn: Qpn, qp_type: QpType, pd: PdId, cap: QpCap, limits: &Limits) -> Self {
        Self {
            qpn,
            qp_type,
            pd,
            made_with: pd,
            recv_pd: pd,
            may_notify_at: Time::ZERO,
            has_srq: false,
            state: QpState::Reset,
            attr: QpAttr { cap, ..QpAttr::default() },
            pkey: PKey::DEFAULT,
            send_cq: None,
            recv_cq: None,
            xrc: None,
            sq_sig_all: false,
            max_message: limits.max_msg_sz,
            mig_req: limits.mig_req,
            cq_overrun: false,
            fatal: false,
            send_failed: false,
        }
    }

    /// The opcode of this queue pair's service for an operation of RC: its own, or that of XRC.
    pub fn opcode(&self, of_rc: Opcode) -> Opcode {
        match self.qp_type {
            QpType::XrcSend | QpType::XrcRecv => of_rc.over_xrc(),
            _ => of_rc,
        }
    }

    /// As whom it and its peer use memory.
    pub fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, qpn: Some(self.qpn) }
    }

    /// Path MTU in bytes.
    pub fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes() as u32
    }

    /// The local ACK timeout in nanoseconds, `None` when it is off.
    pub fn timeout_ns(&self) -> Option<u64> {
        (self.attr.timeout != 0).then(|| 4096 << (self.attr.timeout & 31))
    }

    pub fn complete_send(&mut self, mut completion: Completion, cx: &Context<'_>) {
        cx.carried.let_go();
        completion.timestamp_ns = cx.now.as_ns();
        self.cq_overrun |=
            self.send_cq.as_ref().is_some_and(|cq| cq.push(completion, false).is_err());
    }

    pub fn complete_recv(&mut self, mut completion: Completion, solicited: bool, cx: &Context<'_>) {
        cx.carried.let_go();
        completion.timestamp_ns = cx.now.as_ns();
        let pushed = match (&self.recv_cq, self.xrc.as_ref().and_then(|xrc| xrc.srq.as_ref())) {
            (Some(cq), _) => cq.push(completion, solicited),
            (None, Some(srq)) => srq.complete(completion, solicited),
            (None, None) => Ok(()),
        };
        self.cq_overrun |= pushed.is_err();
    }

    pub fn raise(&self, event: QpEventType, cx: &Context<'_>) {
        cx.device.events.push(AsyncEvent::Qp(event, self.qpn));
    }
}
