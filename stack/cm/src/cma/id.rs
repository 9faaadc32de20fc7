//! Identifiers (`struct rdma_cm_id`).

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::{CommId, PortSpace, ServiceId};
use urxe_wire::{Gid, Psn, QKey, Qpn};

use super::channel::ChannelId;
use super::multicast::Membership;
use super::{Cma, CmaError, CmaEvent, CmaEventType, DeviceKey};
use crate::cm::CmPath;
use crate::cm::limits::{Age, PeerEntries};
use urxe_types::attr::{PathMtu, QpType};
use urxe_types::time::Time;

/// Number of an identifier, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmaId(pub(super) u64);

urxe_types::named_enum! {
    /// The state of an identifier (the kernel's `enum rdma_cm_state`, without transient states).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum IdState: name {
        /// The identifier has no address.
        Idle => "IDLE",
        /// It has a local address and port (`rdma_bind_addr`).
        AddrBound => "ADDR_BOUND",
        /// The peer's address is resolved (`rdma_resolve_addr`).
        AddrResolved => "ADDR_RESOLVED",
        /// The route to the peer is resolved (`rdma_resolve_route`).
        RouteResolved => "ROUTE_RESOLVED",
        /// A connection is requested, accepted or established.
        Connect => "CONNECT",
        /// The connection has ended.
        Disconnect => "DISCONNECT",
        /// It listens for requests (`rdma_listen`).
        Listen => "LISTEN",
        /// The device was removed.
        DeviceRemoval => "DEVICE_REMOVAL",
    }
}

/// The options of an identifier (`rdma_set_option`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `RDMA_OPTION_ID_TOS`: type of service of the packets. Used when the route is resolved.
    pub tos: u8,
    /// `RDMA_OPTION_ID_REUSEADDR`: whether the identifier may share its port.
    pub reuse_addr: bool,
    /// `RDMA_OPTION_ID_AFONLY`: whether a listener accepts only its own IP version. With `None`,
    /// binding decides.
    pub af_only: Option<bool>,
    /// `RDMA_OPTION_ID_ACK_TIMEOUT`: local ACK timeout of the queue pair, if not derived.
    pub ack_timeout: Option<u8>,
    /// Whether requests for a listener inherit these options. The kernel's listeners do not.
    pub is_inherited: bool,
    /// The time to wait for a peer's reply.
    pub retry_policy: RetryPolicy,
}

/// The time to wait for a reply of a connection manager, and the number of retries. C programs
/// cannot change these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Time to wait for a reply: 4.096 µs · 2^timeout, 0 to 31.
    pub response_timeout: u8,
    /// Number of retries, 0 to 15.
    pub max_retries: u8,
}

impl Default for RetryPolicy {
    /// Returns 4.3 s and 15 retries (cma.c, `CMA_CM_RESPONSE_TIMEOUT` and `CMA_MAX_CM_RETRIES`).
    fn default() -> Self {
        Self { response_timeout: 20, max_retries: 15 }
    }
}

/// The packet life time of 0.3 s, as an exponent (cma.c, `CMA_IBOE_PACKET_LIFETIME`).
const PACKET_LIFE_TIME: u8 = 16;

/// An identifier.
#[derive(Debug)]
pub(super) struct Id {
    pub space: PortSpace,
    pub qp_type: QpType,
    pub channel: ChannelId,
    /// User value of the caller, or 0 if not set.
    pub user: u64,
    pub state: IdState,
    pub options: Options,
    pub src: Option<SocketAddr>,
    pub dst: Option<SocketAddr>,
    /// Whether binding restricted listening to one IP version. `options.af_only` takes precedence.
    pub is_bound_af_only: bool,
    pub device: Option<DeviceKey>,
    pub local: Gid,
    pub remote: Gid,
    pub comm: Option<CommId>,
    /// A request created the identifier, and the program has not accepted it.
    pub is_unanswered: bool,
    /// Devices on which the identifier listens.
    pub listens_on: Vec<DeviceKey>,
    /// Devices on which its port is claimed among processes.
    pub claimed_on: Vec<DeviceKey>,
    /// Largest number of requests in the channel.
    pub backlog: usize,
    /// The requests in the channel, by the peers' addresses.
    pub waiting_requests: PeerEntries<CmaId>,
    /// The listener in whose channel the request of this identifier waits, and since when.
    pub waits_for: Option<(CmaId, Age)>,
    /// First PSN of the peer's packets.
    pub first_psn: Psn,
    pub qpn: Qpn,
    pub qkey: QKey,
    pub groups: Vec<Membership>,
    /// Traffic class of the packets, from the options at the time of resolving the route, or the
    /// REQ.
    pub traffic_class: u8,
    /// Packet life time: 4.096 µs · 2^n.
    pub packet_life_time: u8,
    /// Path MTU that the program chose instead of the device's.
    pub chosen_mtu: Option<PathMtu>,
}

impl Id {
    pub fn new(
        space: PortSpace,
        qp_type: QpType,
        channel: ChannelId,
        user: u64,
        first_psn: Psn,
    ) -> Self {
        Self {
            space,
            qp_type,
            channel,
            user,
            state: IdState::Idle,
            options: Options::default(),
            src: None,
            dst: None,
            is_bound_af_only: false,
            device: None,
            local: Gid::ZERO,
            remote: Gid::ZERO,
            comm: None,
            is_unanswered: false,
            listens_on: Vec::new(),
            claimed_on: Vec::new(),
            backlog: 0,
            waiting_requests: PeerEntries::default(),
            waits_for: None,
            first_psn,
            qpn: Qpn::masked(0),
            qkey: PortSpace::UDP_QKEY,
            groups: Vec::new(),
            traffic_class: 0,
            packet_life_time: PACKET_LIFE_TIME,
            chosen_mtu: None,
        }
    }

    pub fn is_datagram(&self) -> bool {
        self.qp_type.is_datagram()
    }

    /// Returns whether the identifier listens only for its own IP version.
    pub fn af_only(&self) -> bool {
        self.options.af_only.unwrap_or(self.is_bound_af_only)
    }

    pub fn path(&self) -> CmPath {
        CmPath { local: self.local, remote: self.remote }
    }

    /// Applies the options to a route when it is resolved. The packet life time is half of the ACK
    /// timeout (cma.c, `cma_resolve_iboe_route`).
    pub fn apply_route_options(&mut self) {
        self.traffic_class = self.options.tos;
        let chosen = self.options.ack_timeout.and_then(|timeout| timeout.checked_sub(1));
        self.packet_life_time = chosen.unwrap_or(PACKET_LIFE_TIME);
    }

    /// Returns the service id of the local port.
    pub fn own_service(&self) -> ServiceId {
        ServiceId::new(self.space, self.src.map_or(0, |src| src.port()))
    }

    /// Returns the address on which the port is claimed, or `None` for all addresses.
    pub fn claimed_address(&self) -> Option<IpAddr> {
        self.src.map(|src| src.ip().to_canonical()).filter(|ip| !ip.is_unspecified())
    }
}

impl Cma {
    /// Creates an identifier (`rdma_create_id`). Its events contain `user`.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownChannel`] if the channel does not exist.
    pub fn create_id(
        &mut self,
        channel: ChannelId,
        space: PortSpace,
        qp_type: QpType,
        user: u64,
    ) -> Result<CmaId, CmaError> {
        self.channels.check(channel)?;
        Ok(self.insert(Id::new(space, qp_type, channel, user, Psn::new(0))))
    }

    pub(super) fn insert(&mut self, mut id: Id) -> CmaId {
        let name = CmaId(self.next_id);
        self.next_id += 1;
        id.first_psn = Psn::new(self.rng.next_u32());
        self.ids.insert(name, id);
        name
    }

    /// Destroys an identifier (`rdma_destroy_id`). The peer receives the message that the state
    /// requires. Unread events are removed. The requests in these events are rejected.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn destroy_id(&mut self, now: Time, id: CmaId) -> Result<(), CmaError> {
        self.id(id)?;
        self.stop_waiting(id);
        self.unlisten(id);
        for abandoned in self.channels.withdraw(|event| event.id == id) {
            if let Some(request) = abandoned.new_id {
                self.destroy_id(now, request)?;
            }
        }
        self.release_connection(now, id);
        self.unbind(id);
        self.ids.remove(&id);
        Ok(())
    }

    /// Destroys all identifiers, as the kernel does when a process ends. No channel has events
    /// afterwards.
    pub fn destroy_all(&mut self, now: Time) {
        self.destroy_where(now, |_| true);
    }

    /// Destroys the identifiers for which `is_due` returns true, the oldest first.
    pub(super) fn destroy_where(&mut self, now: Time, is_due: impl Fn(&Id) -> bool) {
        let due = self.ids.iter().filter(|(_, id)| is_due(id));
        let mut ids: Vec<CmaId> = due.map(|(name, _)| *name).collect();
        ids.sort_unstable();
        for id in ids {
            // A request ended with the event of its listener.
            let _ = self.destroy_id(now, id);
        }
    }

    /// Releases the connection of an identifier, without an event.
    pub(super) fn release_connection(&mut self, now: Time, id: CmaId) {
        let Ok((key, comm, device)) = self.connection(id) else { return };
        // The connection no longer exists if it ended by itself.
        let _ = device.manager.destroy(now, comm);
        device.by_comm.remove(&comm);
        if let Some(known) = self.ids.get_mut(&id) {
            known.comm = None;
        }
        self.process_events(now, key);
    }

    /// Sets the user value of an identifier.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn set_user(&mut self, id: CmaId, user: u64) -> Result<(), CmaError> {
        self.id_mut(id)?.user = user;
        Ok(())
    }

    /// Returns the user value of an identifier.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn user(&self, id: CmaId) -> Result<u64, CmaError> {
        self.id(id).map(|id| id.user)
    }

    /// Returns the path MTU of the connection, or of the device if there is no connection.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist, and with
    /// [`CmaError::NoConnection`] if it has no device.
    pub fn path_mtu(&self, id: CmaId) -> Result<PathMtu, CmaError> {
        let known = self.id(id)?;
        let absent = CmaError::NoConnection { id, state: known.state };
        let device = known.device.and_then(|key| self.devices.get(&key)).ok_or(absent)?;
        let agreed = known.comm.and_then(|comm| device.manager.agreed(comm));
        let agreed = agreed.and_then(|agreed| PathMtu::from_number(agreed.path_mtu.value()));
        Ok(agreed.or(known.chosen_mtu).unwrap_or_else(|| device.local.path_mtu()))
    }

    /// Returns the traffic class of the packets and the packet life time: 4.096 µs · 2^n.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn route(&self, id: CmaId) -> Result<(u8, u8), CmaError> {
        self.id(id).map(|id| (id.traffic_class, id.packet_life_time))
    }

    /// Returns the options of an identifier.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn options_mut(&mut self, id: CmaId) -> Result<&mut Options, CmaError> {
        Ok(&mut self.id_mut(id)?.options)
    }

    /// Allows or forbids sharing the port (`RDMA_OPTION_ID_REUSEADDR`). A program may allow sharing
    /// until the identifier listens, and forbid it until the identifier is bound (cma.c,
    /// `rdma_set_reuseaddr`).
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist, and with
    /// [`CmaError::State`] if its state does not allow the call.
    pub fn set_reuse_addr(&mut self, id: CmaId, reuse_addr: bool) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let state = known.state;
        if state != IdState::Idle && !(reuse_addr && state == IdState::AddrBound) {
            return Err(CmaError::State { id, state, call: "set REUSEADDR" });
        }
        known.options.reuse_addr = reuse_addr;
        Ok(())
    }

    /// Sets whether a listener accepts only its own IP version (`RDMA_OPTION_ID_AFONLY`). Must be
    /// called before listening.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist, and with
    /// [`CmaError::State`] if its state does not allow the call.
    pub fn set_af_only(&mut self, id: CmaId, af_only: bool) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let state = known.state;
        if !matches!(state, IdState::Idle | IdState::AddrBound) {
            return Err(CmaError::State { id, state, call: "set AFONLY" });
        }
        known.options.af_only = Some(af_only);
        Ok(())
    }

    /// Returns the state of an identifier.
    #[must_use]
    pub fn state(&self, id: CmaId) -> Option<IdState> {
        self.ids.get(&id).map(|id| id.state)
    }

    /// Returns the local address and the peer's address, if known.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn addresses(
        &self,
        id: CmaId,
    ) -> Result<(Option<SocketAddr>, Option<SocketAddr>), CmaError> {
        self.id(id).map(|id| (id.src, id.dst))
    }

    /// Returns the GIDs of both sides, which are zero while unknown.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist.
    pub fn gids(&self, id: CmaId) -> Result<(Gid, Gid), CmaError> {
        self.id(id).map(|id| (id.local, id.remote))
    }

    /// Returns the device of an identifier, if it is bound to one.
    #[must_use]
    pub fn device_of(&self, id: CmaId) -> Option<DeviceKey> {
        self.ids.get(&id).and_then(|id| id.device)
    }

    /// Moves an identifier and its unread events to another channel (`rdma_migrate_id`).
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] or [`CmaError::UnknownChannel`] if one of them does not
    /// exist.
    pub fn migrate(&mut self, id: CmaId, to: ChannelId) -> Result<(), CmaError> {
        self.channels.check(to)?;
        let from = std::mem::replace(&mut self.id_mut(id)?.channel, to);
        if from == to {
            return Ok(());
        }
        for event in self.channels.withdraw(|event| event.id == id) {
            // The identifiers of unread requests move as well, so that their events use the new
            // channel.
            if let Some(request) = event.new_id
                && let Some(request) = self.ids.get_mut(&request)
            {
                request.channel = to;
            }
            self.channels.push(to, event);
        }
        Ok(())
    }

    /// Adds an event for the program.
    ///
    /// An identifier that a request created receives no events until it is accepted. If the request
    /// ends before, accepting it fails (ucma.c, `ucma_event_handler`).
    pub(super) fn notify(&mut self, event: CmaEvent) {
        if let Some(known) = self.ids.get(&event.id).filter(|known| !known.is_unanswered) {
            self.channels.push(known.channel, event);
        }
    }

    pub(super) fn notify_type(&mut self, id: CmaId, event_type: CmaEventType) {
        self.notify_status(id, event_type, 0);
    }

    pub(super) fn notify_status(&mut self, id: CmaId, event_type: CmaEventType, status: i32) {
        self.notify(CmaEvent { status, ..CmaEvent::new(id, event_type) });
    }
}
