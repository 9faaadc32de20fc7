//! A connection: its addresses, its negotiated parameters and its pending request.

use urxe_wire::mad::{Attribute, Bits, CommId, MAD_LEN, Rep, Req, TransactionId, TransportType};
use urxe_wire::{Gid, PKey, Psn, Qpn};

use super::keep_alive::KeepAlive;
use super::limits::Age;
use super::request_window::SendState;
use super::table::CmState;
use urxe_types::time::Time;

/// The addresses between which MADs travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmPath {
    /// Address of this side.
    pub local: Gid,
    /// Address of the peer.
    pub remote: Gid,
}

impl CmPath {
    /// Returns the path between two addresses.
    pub fn new(local: impl Into<Gid>, remote: impl Into<Gid>) -> Self {
        Self { local: local.into(), remote: remote.into() }
    }
}

/// The parameters that both sides have negotiated so far, for the attributes of a queue pair (cm.c,
/// `cm_init_qp_rtr_attr` and `cm_init_qp_rts_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// RC, UC or XRC.
    pub transport_type: TransportType,
    /// Queue pair of this side.
    pub local_qpn: Qpn,
    /// Queue pair of the peer.
    pub remote_qpn: Qpn,
    /// First PSN of the peer's packets.
    pub rq_psn: Psn,
    /// First PSN of this side's packets.
    pub sq_psn: Psn,
    /// The path MTU as a code: 1 is 256 bytes, 5 is 4096.
    pub path_mtu: Bits<4>,
    /// Partition key.
    pub pkey: PKey,
    /// Number of READs and atomics that this side requests at a time.
    pub initiator_depth: u8,
    /// Number of READs and atomics that this side answers at a time.
    pub responder_resources: u8,
    /// `retry_cnt`.
    pub retry_count: Bits<3>,
    /// `rnr_retry`.
    pub rnr_retry_count: Bits<3>,
    /// Local ACK timeout: 4.096 µs · 2^n.
    pub ack_timeout: u8,
    /// The peer's vendor and options of enhanced connection establishment.
    pub ece: (u32, u32),
    /// The REQ, which may name an alternate path.
    pub req: Req,
}

/// A message that is retransmitted until a reply arrives.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    pub attribute: Attribute,
    pub mad: [u8; MAD_LEN],
    pub interval_ns: u64,
    pub retries_left: u32,
    pub send_state: SendState,
}

/// The side that created an entry. Each has a limit of its own, so that peers cannot keep this side
/// from connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A call of the program.
    Own,
    /// A REQ of a peer.
    Peer,
    /// A SIDR_REQ of a peer.
    Service,
}

impl Origin {
    /// The number of origins.
    pub const COUNT: usize = 3;
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub id: CommId,
    pub origin: Origin,
    /// The place among the half-open connections or those in TIMEWAIT, by the state.
    pub age: Option<Age>,
    pub remote_id: CommId,
    pub path: CmPath,
    pub state: CmState,
    /// The program released the connection: it receives no more events and is removed when idle.
    pub is_released: bool,
    /// Both sides may request the connection.
    pub is_peer: bool,
    /// The listener, until the program has replied.
    pub listener: Option<u32>,
    pub tid: TransactionId,
    pub transactions: u32,
    pub pending_request: Option<PendingRequest>,
    /// The last message, for retransmission after a duplicate.
    pub last_reply: Option<[u8; MAD_LEN]>,
    /// The probes of an established connection.
    pub keep_alive: Option<KeepAlive>,
    /// Time of the next retransmission or probe, or end of TIMEWAIT.
    pub deadline: Time,
    /// Time to wait for a reply, in nanoseconds.
    pub interval_ns: u64,
    pub max_cm_retries: u32,
    /// Duration of TIMEWAIT: 4.096 µs · 2^n.
    pub wait_exponent: u8,
    pub agreed: Agreed,
}

/// The shortest and the longest response timeout that a peer can choose, as exponents: 0.27 s and
/// 17 s. The kernel's CMA chooses 4.3 s.
const RESPONSE_TIMEOUTS: [u32; 2] = [16, 22];
/// The longest service timeout of an MRA that is believed, as an exponent: 69 s. The kernel's CMA
/// states this value.
pub(super) const MAX_SERVICE_TIMEOUT: u32 = 24;
/// The longest TIMEWAIT, as an exponent: 17 s.
const MAX_TIMEWAIT: u8 = 22;

/// Returns 4.096 µs · 2^n in nanoseconds (IBTA 12.7.34).
pub(super) fn exponent_ns(exponent: u32) -> u64 {
    4_096 << exponent.min(31)
}

/// Returns the response timeout that a peer chose, within the limits, in nanoseconds.
fn response_timeout_ns(chosen: Bits<5>) -> u64 {
    let [shortest, longest] = RESPONSE_TIMEOUTS;
    exponent_ns(chosen.value().clamp(shortest, longest))
}

/// Returns the duration of TIMEWAIT for the ACK timeout that follows from a peer's acknowledgement
/// delay, as an exponent.
pub(super) fn timewait_exponent(ack_timeout: u8) -> u8 {
    ack_timeout.min(MAX_TIMEWAIT)
}

/// Returns the exponent of the local ACK timeout, from the exponents of the device's
/// acknowledgement delay and the packet life time.
///
/// The result is the larger of the delay and the round trip, plus one if the other is at least half
/// of it (cm.c, `cm_ack_timeout`).
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
    /// Returns the path of the connection's messages, and their traffic class. As in the kernel,
    /// this is the traffic class in the REQ.
    pub fn route(&self) -> (CmPath, u8) {
        (self.path, self.agreed.req.primary_traffic_class)
    }

    pub fn new(id: CommId, path: CmPath, agreed: Agreed) -> Self {
        Self {
            id,
            origin: Origin::Own,
            age: None,
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
            keep_alive: None,
            deadline: Time::NEVER,
            interval_ns: 0,
            max_cm_retries: 0,
            wait_exponent: 0,
            agreed,
        }
    }

    /// Returns the connection for a received REQ. The peer's initiator depth is this side's
    /// responder resources, and the other way round.
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
            origin: Origin::Peer,
            remote_id: req.local_comm_id,
            tid,
            interval_ns: response_timeout_ns(req.local_cm_response_timeout),
            max_cm_retries: req.max_cm_retries.value(),
            wait_exponent: timewait_exponent(agreed.ack_timeout),
            ..Self::new(id, path, agreed)
        }
    }

    /// Returns whether this connection is in TIMEWAIT and `req` does not repeat its REQ. In this
    /// case the peer's process ended, and another process uses the same id.
    ///
    /// The kernel removes the peer's ids when TIMEWAIT starts (cm.c, `cm_enter_timewait`).
    pub fn is_superseded_by(&self, req: &Req) -> bool {
        let Agreed { remote_qpn, sq_psn, .. } = self.agreed;
        self.state == CmState::Timewait && (remote_qpn, sq_psn) != (req.local_qpn, req.starting_psn)
    }

    /// Returns the connection for a received SIDR_REQ.
    pub fn from_sidr_req(id: CommId, path: CmPath, tid: TransactionId, request_id: CommId) -> Self {
        // A peer with the kernel's CMA sends 16 requests at an interval of 4.3 s. The last few of
        // them must find the reply.
        const WAIT_EXPONENT: u8 = 22;
        let new = Self::new(id, path, Agreed::of(&Req::default()));
        let origin = Origin::Service;
        Self { origin, remote_id: request_id, tid, wait_exponent: WAIT_EXPONENT, ..new }
    }
}

impl Agreed {
    /// Returns the parameters that a REQ states, which are the same for both sides.
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

/// Returns the passive side's queue pair. For XRC, its number is in the EE context field.
pub(super) fn qpn_of(rep: &Rep, transport_type: TransportType) -> Qpn {
    match transport_type {
        TransportType::Extended => Qpn::masked(rep.local_eecn.value()),
        _ => rep.local_qpn,
    }
}
