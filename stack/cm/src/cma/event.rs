//! What programs are told (`struct rdma_cm_event`).

use urxe_wire::{QKey, Qpn};

use super::{CmaId, Membership};
use urxe_types::attr::AddressVector;

urxe_types::named_enum! {
    /// The kind of an event (`enum rdma_cm_event_type`), named as there without the prefix.
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
    /// Whom it is about; of a request, who listens.
    pub id: CmaId,
    /// What happened.
    pub event_type: CmaEventType,
    /// 0, a negative error number, or the peer's reason.
    pub status: i32,
    /// The identifier that a request made.
    pub new_id: Option<CmaId>,
    /// The caller's name for `id`.
    pub user: u64,
    /// The group that it is about.
    pub membership: Option<Membership>,
    /// What came with it.
    pub param: EventParam,
    /// The peer's vendor and options of enhanced connection establishment.
    pub ece: (u32, u32),
}

impl CmaEvent {
    /// An event that says nothing but its type.
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

/// What came with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventParam {
    /// Nothing.
    None,
    /// Of connections (`struct rdma_conn_param`).
    Conn(ConnEvent),
    /// Of datagrams (`struct rdma_ud_param`).
    Ud(UdEvent),
}

/// What a peer says of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnEvent {
    /// The program's data, with the zeros behind it that fill the message.
    pub private_data: Vec<u8>,
    /// READs and atomics that the peer asks for at a time.
    pub responder_resources: u8,
    /// READs and atomics that the peer answers at a time.
    pub initiator_depth: u8,
    /// Whether the peer's receive queue gives credits.
    pub flow_control: bool,
    /// `retry_cnt`.
    pub retry_count: u8,
    /// `rnr_retry`.
    pub rnr_retry_count: u8,
    /// Whether the peer's queue pair receives from a shared queue.
    pub srq: bool,
    /// The peer's queue pair.
    pub qpn: Qpn,
}

/// Whom datagrams go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdEvent {
    /// The program's data, with the zeros behind it that fill the message.
    pub private_data: Vec<u8>,
    /// The way there.
    pub ah: AddressVector,
    /// The queue pair there.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: QKey,
}
