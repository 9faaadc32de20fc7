//! Identifiers: what a program's `struct rdma_cm_id` stands for.

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::{CommId, PortSpace, ServiceId};
use urxe_wire::{Gid, Psn, QKey, Qpn};

use super::channel::ChannelId;
use super::multicast::Membership;
use super::{Cma, CmaError, CmaEvent, CmaEventType, DeviceKey};
use crate::cm::CmPath;
use urxe_types::attr::{PathMtu, QpType};
use urxe_types::time::Time;

/// Names an identifier. No two of a process ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmaId(pub(super) u64);

urxe_types::named_enum! {
    /// Where an identifier is (the kernel's `enum rdma_cm_state`, but for those that it only passes
    /// through), named as there without the prefix.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub enum IdState: name {
        Idle => "IDLE",
        AddrBound => "ADDR_BOUND",
        AddrResolved => "ADDR_RESOLVED",
        RouteResolved => "ROUTE_RESOLVED",
        Connect => "CONNECT",
        Disconnect => "DISCONNECT",
        Listen => "LISTEN",
        /// Its device is gone.
        DeviceRemoval => "DEVICE_REMOVAL",
    }
}

/// What a program may set (`rdma_set_option`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `RDMA_OPTION_ID_TOS`: the type of service of its packets, once its route is resolved.
    pub tos: u8,
    /// `RDMA_OPTION_ID_REUSEADDR`: may share its port.
    pub reuse_addr: bool,
    /// `RDMA_OPTION_ID_AFONLY`: whether it listens on the addresses of its own family only; `None`:
    /// as binding decides.
    pub af_only: Option<bool>,
    /// `RDMA_OPTION_ID_ACK_TIMEOUT`: the queue pair's timeout, where it is not to be derived.
    pub ack_timeout: Option<u8>,
    /// What listens hands these options on to who asks. The kernel's do not.
    pub is_inherited: bool,
    /// How long a peer is asked that does not answer.
    pub retry_policy: RetryPolicy,
}

/// How long either side may take to answer a message of the connection manager, and how often it is
/// asked again. Programs of C cannot change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// 4.096 µs · 2^timeout, 0 to 31.
    pub response_timeout: u8,
    /// 0 to 15.
    pub max_retries: u8,
}

impl Default for RetryPolicy {
    /// 4.3 s and 15 times (cma.c, `CMA_CM_RESPONSE_TIMEOUT` and `CMA_MAX_CM_RETRIES`).
    fn default() -> Self {
        Self { response_timeout: 20, max_retries: 15 }
    }
}

/// How long a packet is on its way, 0.3 s (cma.c, `CMA_IBOE_PACKET_LIFETIME`).
const PACKET_LIFE_TIME: u8 = 16;

/// An identifier.
#[derive(Debug)]
pub(super) struct Id {
    pub space: PortSpace,
    pub qp_type: QpType,
    pub channel: ChannelId,
    /// The caller's own name for it; 0 as long as there is none.
    pub user: u64,
    pub state: IdState,
    pub options: Options,
    pub src: Option<SocketAddr>,
    pub dst: Option<SocketAddr>,
    /// What binding decided of AFONLY, where the program did not.
    pub is_bound_af_only: bool,
    pub device: Option<DeviceKey>,
    pub local: Gid,
    pub remote: Gid,
    pub comm: Option<CommId>,
    /// A request made it, and it is not accepted yet.
    pub is_unanswered: bool,
    /// Where it listens.
    pub listens_on: Vec<DeviceKey>,
    /// Where its port is claimed among the processes of the addresses.
    pub claimed_on: Vec<DeviceKey>,
    /// Requests that the program may leave in its channel.
    pub backlog: usize,
    pub waiting_requests: usize,
    /// The first PSN that is to come from the peer.
    pub first_psn: Psn,
    pub qpn: Qpn,
    pub qkey: QKey,
    pub remote_ece: (u32, u32),
    pub groups: Vec<Membership>,
    /// Of its packets, by the options when its route was resolved, or by the REQ.
    pub traffic_class: u8,
    /// How long a packet is on its way: 4.096 µs · 2^n.
    pub packet_life_time: u8,
    /// The path MTU that the program has chosen, where it is not the device's.
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
            waiting_requests: 0,
            first_psn,
            qpn: Qpn::masked(0),
            qkey: PortSpace::UDP_QKEY,
            remote_ece: (0, 0),
            groups: Vec::new(),
            traffic_class: 0,
            packet_life_time: PACKET_LIFE_TIME,
            chosen_mtu: None,
        }
    }

    pub fn is_datagram(&self) -> bool {
        self.qp_type.is_datagram()
    }

    /// Whether it listens on the addresses of its own family only.
    pub fn af_only(&self) -> bool {
        self.options.af_only.unwrap_or(self.is_bound_af_only)
    }

    pub fn path(&self) -> CmPath {
        CmPath { local: self.local, remote: self.remote }
    }

    /// What the options say of a route when it is resolved: half of the timeout of an
    /// acknowledgement is the way there (cma.c, `cma_resolve_iboe_route`).
    pub fn apply_route_options(&mut self) {
        self.traffic_class = self.options.tos;
        let chosen = self.options.ack_timeout.and_then(|timeout| timeout.checked_sub(1));
        self.packet_life_time = chosen.unwrap_or(PACKET_LIFE_TIME);
    }

    /// The service id of its own port.
    pub fn own_service(&self) -> ServiceId {
        ServiceId::new(self.space, self.src.map_or(0, |src| src.port()))
    }

    /// The address that it claims its port on; `None` for all.
    pub fn claimed_address(&self) -> Option<IpAddr> {
        self.src.map(|src| src.ip().to_canonical()).filter(|ip| !ip.is_unspecified())
    }
}

impl Cma {
    /// A new identifier (`rdma_create_id`). `user` comes back with its events.
    ///
    /// # Errors
    /// [`CmaError::UnknownChannel`].
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

    /// Destroys an identifier (`rdma_destroy_id`): the peer is told what it needs to know; events
    /// that nobody took are withdrawn, and with them the requests that they were about.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn destroy_id(&mut self, now: Time, id: CmaId) -> Result<(), CmaError> {
        self.id(id)?;
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

    /// Ends the communication of an identifier without a word to the program.
    pub(super) fn release_connection(&mut self, now: Time, id: CmaId) {
        let Ok((key, comm, device)) = self.connection(id) else { return };
        // It is unknown when it ended by itself.
        let _ = device.manager.destroy(now, comm);
        device.by_comm.remove(&comm);
        if let Some(known) = self.ids.get_mut(&id) {
            known.comm = None;
        }
        self.process_events(now, key);
    }

    /// Names an identifier that a request made.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn set_user(&mut self, id: CmaId, user: u64) -> Result<(), CmaError> {
        self.id_mut(id)?.user = user;
        Ok(())
    }

    /// The caller's name for it.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn user(&self, id: CmaId) -> Result<u64, CmaError> {
        self.id(id).map(|id| id.user)
    }

    /// The path MTU of its connection, or of its device as long as there is none.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`], [`CmaError::NoConnection`].
    pub fn path_mtu(&self, id: CmaId) -> Result<PathMtu, CmaError> {
        let known = self.id(id)?;
        let absent = CmaError::NoConnection { id, state: known.state };
        let device = known.device.and_then(|key| self.devices.get(&key)).ok_or(absent)?;
        let agreed = known.comm.and_then(|comm| device.manager.agreed(comm));
        let agreed = agreed.and_then(|agreed| PathMtu::from_number(agreed.path_mtu.value()));
        Ok(agreed.or(known.chosen_mtu).unwrap_or_else(|| device.local.path_mtu()))
    }

    /// The traffic class of its packets, and how long one is on its way: 4.096 µs · 2^n.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn route(&self, id: CmaId) -> Result<(u8, u8), CmaError> {
        self.id(id).map(|id| (id.traffic_class, id.packet_life_time))
    }

    /// Its options.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn options_mut(&mut self, id: CmaId) -> Result<&mut Options, CmaError> {
        Ok(&mut self.id_mut(id)?.options)
    }

    /// Allows or forbids sharing its port (`RDMA_OPTION_ID_REUSEADDR`): allowing is possible until
    /// it listens, forbidding until it is bound (cma.c, `rdma_set_reuseaddr`).
    ///
    /// # Errors
    /// [`CmaError::UnknownId`], [`CmaError::State`].
    pub fn set_reuse_addr(&mut self, id: CmaId, reuse_addr: bool) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let state = known.state;
        if state != IdState::Idle && !(reuse_addr && state == IdState::AddrBound) {
            return Err(CmaError::State { id, state, call: "set REUSEADDR" });
        }
        known.options.reuse_addr = reuse_addr;
        Ok(())
    }

    /// Listens on the addresses of its own family only, or on all (`RDMA_OPTION_ID_AFONLY`); to be
    /// said before it listens.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`], [`CmaError::State`].
    pub fn set_af_only(&mut self, id: CmaId, af_only: bool) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let state = known.state;
        if !matches!(state, IdState::Idle | IdState::AddrBound) {
            return Err(CmaError::State { id, state, call: "set AFONLY" });
        }
        known.options.af_only = Some(af_only);
        Ok(())
    }

    /// Its state.
    #[must_use]
    pub fn state(&self, id: CmaId) -> Option<IdState> {
        self.ids.get(&id).map(|id| id.state)
    }

    /// Its own address and the peer's, as far as they are known.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn addresses(
        &self,
        id: CmaId,
    ) -> Result<(Option<SocketAddr>, Option<SocketAddr>), CmaError> {
        self.id(id).map(|id| (id.src, id.dst))
    }

    /// The GIDs of both ends; zero while they are not known.
    ///
    /// # Errors
    /// [`CmaError::UnknownId`].
    pub fn gids(&self, id: CmaId) -> Result<(Gid, Gid), CmaError> {
        self.id(id).map(|id| (id.local, id.remote))
    }

    /// The device it is bound to.
    #[must_use]
    pub fn device_of(&self, id: CmaId) -> Option<DeviceKey> {
        self.ids.get(&id).and_then(|id| id.device)
    }

    /// Moves an identifier, with the events that wait, to another channel (`rdma_migrate_id`).
    ///
    /// # Errors
    /// [`CmaError::UnknownId`], [`CmaError::UnknownChannel`].
    pub fn migrate(&mut self, id: CmaId, to: ChannelId) -> Result<(), CmaError> {
        self.channels.check(to)?;
        let from = std::mem::replace(&mut self.id_mut(id)?.channel, to);
        if from == to {
            return Ok(());
        }
        for event in self.channels.withdraw(|event| event.id == id) {
            // A request that nobody took goes along, so that its events come where it is expected.
            if let Some(request) = event.new_id
                && let Some(request) = self.ids.get_mut(&request)
            {
                request.channel = to;
            }
            self.channels.push(to, event);
        }
        Ok(())
    }

    /// Tells the program of an identifier. Of one that a request made nothing is told before it is
    /// accepted: accepting it fails then (ucma.c, `ucma_event_handler`).
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
