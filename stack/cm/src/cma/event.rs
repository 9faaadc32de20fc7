//! The events of the RDMA IP CM service (`struct rdma_cm_event`).

use urxe_wire::{QKey, Qpn};

use super::{CmaId, Membership};
use urxe_types::attr::AddressVector;

urxe_types::named_enum! {
    /// The type of an event (`enum rdma_cm_event_type`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    #[allow(missing_docs)]
    pub enum CmaEventType: name, number -> u8 {
        AddrResolved = 0 => "ADDR_RESOLVED",
        AddrError = 1 => "ADDR_ERROR",
        RouteResolved = 2 => "ROUTE_RESOLVED",
        RouteError = 3 => "ROUTE_ERROR",
        ConnectRequest = 4 => "CONNECT_REQUEST",
        ConnectResponse = 5 => "CONNECT_RESPONSE",
        ConnectError = 6 => "CONNECT_ERROR",
        Unreachable = 7 => "UNREACHABLE",
        Rejected = 8 => "REJECTED",
        Established = 9 => "ESTABLISHED",
        Disconnected = 10 => "DISCONNECTED",
        DeviceRemoval = 11 => "DEVICE_REMOVAL",
        MulticastJoin = 12 => "MULTICAST_JOIN",
        MulticastError = 13 => "MULTICAST_ERROR",
        AddrChange = 14 => "ADDR_CHANGE",
        TimewaitExit = 15 => "TIMEWAIT_EXIT",
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmaEvent {
    /// The identifier, which for a request is the listener.
    pub id: CmaId,
    /// The type of the event.
    pub event_type: CmaEventType,
    /// 0, a negative error number, or the peer's reject reason.
    pub status: i32,
    /// The new identifier of a request.
    pub new_id: Option<CmaId>,
    /// The user value of `id`.
    pub user: u64,
    /// The membership in a multicast group.
    pub membership: Option<Membership>,
    /// The data of the event.
    pub param: EventParam,
    /// The peer's vendor and options of enhanced connection establishment.
    pub ece: (u32, u32),
}

impl CmaEvent {
    /// Returns an event without data.
    #[must_use]
    pub(super) const fn new(id: CmaId, event_type: CmaEventType) -> Self {
        Self {
            id,
            event_type,
            status: 0,
            new_id: None,
            user: 0,
            membership: None,
            param: EventParam::None,
            ece: (0, 0),
        }
    }
}

/// The data of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventParam {
    /// No data.
    None,
    /// Data of a connection (`struct rdma_conn_param`).
    Conn(ConnEvent),
    /// Data of a datagram service or multicast group (`struct rdma_ud_param`).
    Ud(UdEvent),
}

/// The parameters of a connection, as the peer states them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnEvent {
    /// The peer's private data, including the zeros that fill up the message.
    pub private_data: Vec<u8>,
    /// Number of READs and atomics that the peer requests at a time.
    pub responder_resources: u8,
    /// Number of READs and atomics that the peer answers at a time.
    pub initiator_depth: u8,
    /// Whether the peer's receive queue uses end-to-end flow control.
    pub flow_control: bool,
    /// `retry_cnt`.
    pub retry_count: u8,
    /// `rnr_retry`.
    pub rnr_retry_count: u8,
    /// Whether the peer's queue pair uses a shared receive queue.
    pub srq: bool,
    /// Number of the peer's queue pair.
    pub qpn: Qpn,
}

/// The destination of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdEvent {
    /// The peer's private data, including the zeros that fill up the message.
    pub private_data: Vec<u8>,
    /// The address of the destination.
    pub ah: AddressVector,
    /// Number of the destination's queue pair.
    pub qpn: Qpn,
    /// Q_Key of the destination.
    pub qkey: QKey,
}
