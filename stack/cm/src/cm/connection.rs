//! One communication: who with, what was agreed, what is being said again and again.

use urxe_wire::mad::{Attribute, Bits, CommId, MAD_LEN, Rep, Req, TransactionId, TransportType};
use urxe_wire::{Gid, PKey, Psn, Qpn};

use super::request_window::SendState;
use super::table::CmState;
use urxe_types::time::Time;

/// Between which addresses MADs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmPath {
    /// This side.
    pub local: Gid,
    /// The other side.
    pub remote: Gid,
}

impl CmPath {
    /// The path between two addresses.
    pub fn new(local: impl Into<Gid>, remote: impl Into<Gid>) -> Self {
        Self { local: local.into(), remote: remote.into() }
    }
}

/// What both sides have agreed on so far: what a queue pair needs to be connected (cm.c,
/// `cm_init_qp_rtr_attr` and `cm_init_qp_rts_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// RC, UC or XRC.
    pub transport_type: TransportType,
    /// This side's queue pair.
    pub local_qpn: Qpn,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The first PSN that comes from the peer.
    pub rq_psn: Psn,
    /// The first PSN that goes to the peer.
    pub sq_psn: Psn,
    /// The path MTU as a code: 1 is 256 bytes, 5 is 4096.
    pub path_mtu: Bits<4>,
    /// The partition.
    pub pkey: PKey,
    /// READs and atomics asked for at a time.
    pub initiator_depth: u8,
    /// READs and atomics answered at a time.
    pub responder_resources: u8,
    /// `retry_cnt`.
    pub retry_count: Bits<3>,
    /// `rnr_retry`.
    pub rnr_retry_count: Bits<3>,
    /// The ACK timeout: 4.096 µs · 2^n.
    pub ack_timeout: u8,
    /// Vendor and options of the peer for enhanced connection establishment.
    pub ece: (u32, u32),
    /// The REQ, with the alternate path that it may name.
    pub req: Req,
}

/// A message that is sent until it is answered.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    pub attribute: Attribute,
    pub mad: [u8; MAD_LEN],
    pub interval_ns: u64,
    pub retries_left: u32,
    pub send_state: SendState,
}

/// One communication.
#[derive(Debug)]
pub(super) struct Connection {
    pub id: CommId,
    pub remote_id: CommId,
    pub path: CmPath,
    pub state: CmState,
    /// The program has let go of it: nothing more is told, and it goes once it is over.
    pub is_released: bool,
    /// Both sides may ask at once.
    pub is_peer: bool,
    /// Who it came by, while the program has not answered.
    pub listener: Option<u32>,
    pub tid: TransactionId,
    pub transactions: u32,
    pub pending_request: Option<PendingRequest>,
    /// The last thing said that a duplicate asks for again.
    pub last_reply: Option<[u8; MAD_LEN]>,
    /// When to ask again, or when the time of waiting is over.
    pub deadline: Time,
    /// How long to wait for an answer.
    pub interval_ns: u64,
    pub max_cm_retries: u32,
    /// For the time of waiting: 4.096 µs · 2^n.
    pub wait_exponent: u8,
    pub agreed: Agreed,
}

/// 4.096 µs · 2^n in nanoseconds (IBTA 12.7.34).
pub(super) const fn exponent_ns(exponent: u32) -> u64 {
    4_096 << (if exponent > 31 { 31 } else { exponent })
}

/// The ACK timeout by the device's delay and the path's life time, as exponents: the greater of the
/// delay and the way there and back, one more if the other is within half of it (cm.c,
/// `cm_ack_timeout`).
#[must_use]
pub const fn ack_timeout(ack_delay: u8, packet_life_time: u8) -> u8 {
    let there_and_back = packet_life_time + 1;
    let timeout = if there_and_back >= ack_delay {
        there_and_back + (ack_delay + 1 >= there_and_back) as u8
    } else {
        ack_delay + (there_and_back + 1 >= ack_delay) as u8
    };
    if timeout > 31 { 31 } else { timeout }
}

impl Connection {
    /// Where its messages go, and the traffic class that they have: as the kernel's, that of the
    /// path in the REQ.
    pub fn route(&self) -> (CmPath, u8) {
        (self.path, self.agreed.req.primary_traffic_class)
    }

    pub fn new(id: CommId, path: CmPath, agreed: Agreed) -> Self {
        Self {
            id,
            remote_id: CommId::NONE,
            path,
            state: CmState::Idle,
            is_released: false,
            is_peer: false,
            listener: None,
            tid: TransactionId::default(),
            transactions: 0,
            pending_request: None,
            last_reply: None,
            deadline: Time::NEVER,
            interval_ns: 0,
            max_cm_retries: 0,
            wait_exponent: 0,
            agreed,
        }
    }

    /// The communication that a REQ begins: the peer asks for what it answers, and the other way
    /// round.
    pub fn from_req(
        id: CommId,
        path: CmPath,
        tid: TransactionId,
        req: &Req,
        ece_options: u32,
    ) -> Self {
        let agreed = Agreed {
            remote_qpn: req.local_qpn,
            sq_psn: req.starting_psn,
            initiator_depth: req.responder_resources,
            responder_resources: req.initiator_depth,
            ece: (req.ece_vendor_id.value(), ece_options),
            ..Agreed::of(req)
        };
        Self {
            remote_id: req.local_comm_id,
            tid,
            interval_ns: exponent_ns(req.local_cm_response_timeout.value()),
            max_cm_retries: req.max_cm_retries.value(),
            wait_exponent: agreed.ack_timeout,
            ..Self::new(id, path, agreed)
        }
    }

    /// Whether this is over, and the REQ not one that began it: its process has ended, and another
    /// has come to the same id. (The kernel forgets the peer's ids when TIMEWAIT begins: cm.c,
    /// `cm_enter_timewait`.)
    pub fn is_superseded_by(&self, req: &Req) -> bool {
        let Agreed { remote_qpn, sq_psn, .. } = self.agreed;
        self.state == CmState::Timewait && (remote_qpn, sq_psn) != (req.local_qpn, req.starting_psn)
    }

    /// The communication that a SIDR_REQ begins.
    pub fn from_sidr_req(id: CommId, path: CmPath, tid: TransactionId, request_id: CommId) -> Self {
        // As long as the peer of the kernel's CMA asks again: 16 times, 4.3 s apart, of which the
        // last few are enough.
        const WAIT_EXPONENT: u8 = 22;
        let new = Self::new(id, path, Agreed::of(&Req::default()));
        Self { remote_id: request_id, tid, wait_exponent: WAIT_EXPONENT, ..new }
    }
}

impl Agreed {
    /// What is known from one's own REQ, or from either side of the peer's.
    pub(super) fn of(req: &Req) -> Self {
        Self {
            transport_type: req.transport_type,
            local_qpn: Qpn::masked(0),
            remote_qpn: Qpn::masked(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: req.path_mtu,
            pkey: req.pkey,
            initiator_depth: req.initiator_depth,
            responder_resources: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: req.primary_ack_timeout.value().max(1) as u8,
            ece: (0, 0),
            req: *req,
        }
    }
}

/// The passive side's queue pair: XRC has its number where others have an EE context.
pub(super) fn qpn_of(rep: &Rep, transport_type: TransportType) -> Qpn {
    match transport_type {
        TransportType::Extended => Qpn::masked(rep.local_eecn.value()),
        _ => rep.local_qpn,
    }
}
