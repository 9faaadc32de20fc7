//! The RDMA IP CM service (IBTA annex A11): connections by IP addresses and ports, like the
//! kernel's `rdma_cm`.
//!
//! A process has one [`Cma`] for all its devices. It holds identifiers (`struct rdma_cm_id`) and
//! one [`ConnectionManager`] for each device. Like the rest of the core it is sans-IO. Inputs are
//! calls, MADs and time. Outputs are MADs, events and a deadline. Questions to the system and to
//! devices use the traits [`System`] and [`LocalDevice`].
//!
//! ```text
//!  IDLE ──bind──> ADDR_BOUND ──listen──> LISTEN ──a request──> (a new identifier in CONNECT)
//!    └──resolve_addr──┴──> ADDR_RESOLVED ──resolve_route──> ROUTE_RESOLVED
//!                          ROUTE_RESOLVED ──connect──> CONNECT ──disconnect──> DISCONNECT
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `id` | identifiers, their states and options |
//! | `ports` | port spaces |
//! | `address` | binding, resolving addresses and routes |
//! | `listen` | listening, on one device or all |
//! | `connect`, `datagram` | connecting, accepting, rejecting, disconnecting |
//! | `incoming` | processing of the connection manager's events |
//! | `attributes` | attributes of the queue pair for each state |
//! | `multicast` | multicast groups |
//! | [`event`], `channel` | events and event channels |
//! | `listing` | the connections in listings for other programs |
//! | `error` | errors |
//!
//! The caller owns the queue pairs and modifies them with [`Cma::qp_attr`], as librdmacm does. The
//! behaviour follows the kernel's `drivers/infiniband/core/{cma,ucma}.c`.

mod address;
mod attributes;
mod channel;
mod connect;
mod datagram;
mod error;
pub mod event;
mod id;
mod incoming;
mod listen;
mod listing;
mod multicast;
mod ports;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use rustc_hash::FxHashMap;
use urxe_wire::Gid;
use urxe_wire::mad::{CommId, ServiceId};

pub use self::address::Route;
pub use self::channel::ChannelId;
use self::channel::Channels;
pub use self::connect::ConnParam;
pub use self::error::CmaError;
pub use self::event::{CmaEvent, CmaEventType, ConnEvent, EventParam, UdEvent};
use self::id::Id;
pub use self::id::{CmaId, IdState, Options, RetryPolicy};
pub use self::multicast::Membership;
use self::ports::Ports;
use crate::cm::{CmConfig, CmTransmit, ConnectionManager, ListenerId};
use urxe_types::attr::PathMtu;
use urxe_types::owner::ListenError;
use urxe_types::rng::SecretRng;
use urxe_types::time::Time;

/// The properties of a device, and its part in claiming ports among processes.
pub trait LocalDevice: Send + Sync {
    /// Returns the current GID table.
    fn gids(&self) -> Vec<Gid>;

    /// Returns the largest path MTU of the port.
    fn path_mtu(&self) -> PathMtu;

    /// Returns the index of the network interface.
    fn interface(&self) -> u32;

    /// Claims a service id among the processes of `address`, or of all the device's addresses.
    ///
    /// # Errors
    /// Fails with [`ListenError`] if another process has claimed the service id.
    fn claim(&self, address: Option<IpAddr>, service: ServiceId) -> Result<(), ListenError>;

    /// Learns that the program listens on a claimed service id. Until then the device may hold
    /// requests for the service back, because a program that has bound a port listens soon.
    fn begin_listening(&self, _address: Option<IpAddr>, _service: ServiceId) {}

    /// Releases a claim.
    fn release(&self, address: Option<IpAddr>, service: ServiceId);
}

/// The routes and addresses of the system.
pub trait System {
    /// Returns the source address of packets to `to`. If `from` is given and there is a route, the
    /// result is `from`.
    ///
    /// # Errors
    /// Fails with the system's error number if there is no route.
    fn source_for(&self, from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32>;

    /// Returns the index of the interface with an address, or `None` if this host does not have it.
    fn interface_of(&self, address: IpAddr) -> Option<u32>;

    /// Returns the address of this process's device for which 127.0.0.1 stands, if another user has
    /// 127.0.0.1.
    fn localhost(&self) -> Option<IpAddr> {
        None
    }

    /// Returns whether IPv6 wildcard listeners reject IPv4 (`net.ipv6.bindv6only`).
    fn binds_v6_only(&self) -> bool;
}

/// Identifier of a device in a [`Cma`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceKey(u32);

/// A device with its connection manager.
struct CmaDevice {
    local: Box<dyn LocalDevice>,
    manager: ConnectionManager,
    /// The identifiers of the connections.
    by_comm: FxHashMap<CommId, CmaId>,
    /// The listeners of the connection manager, with the number of identifiers that use them.
    listening: HashMap<ServiceId, (ListenerId, usize)>,
}

/// The RDMA IP CM service of a process, see the module documentation.
pub struct Cma {
    /// Boxed, so that a node of the tree is no allocation above
    /// [`LARGE`](urxe_types::allocate::LARGE).
    devices: BTreeMap<DeviceKey, Box<CmaDevice>>,
    next_device: u32,
    ids: FxHashMap<CmaId, Id>,
    next_id: u64,
    ports: Ports,
    channels: Channels,
    rng: SecretRng,
}

impl Cma {
    /// Returns a service without devices and identifiers. Ports and packet sequence numbers depend
    /// on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            devices: BTreeMap::new(),
            next_device: 0,
            ids: FxHashMap::default(),
            next_id: 1,
            ports: Ports::default(),
            channels: Channels::default(),
            rng: SecretRng::stream(seed, 0x636d_615f),
        }
    }

    /// Adds a device. Identifiers that listen on all addresses also listen on the new device.
    pub fn attach(&mut self, local: Box<dyn LocalDevice>, config: CmConfig) -> DeviceKey {
        let key = DeviceKey(self.next_device);
        self.next_device += 1;
        let manager = ConnectionManager::new(config);
        let (by_comm, listening) = (FxHashMap::default(), HashMap::new());
        let device = Box::new(CmaDevice { local, manager, by_comm, listening });
        self.devices.insert(key, device);
        self.listen_on_new_device(key);
        key
    }

    /// Removes a device. Its identifiers receive `RDMA_CM_EVENT_DEVICE_REMOVAL` and lose their
    /// connections.
    pub fn detach(&mut self, key: DeviceKey) {
        if self.devices.remove(&key).is_none() {
            return;
        }
        let bound: Vec<CmaId> =
            self.ids.iter().filter(|(_, id)| id.device == Some(key)).map(|(id, _)| *id).collect();
        for id in bound {
            let Some(known) = self.ids.get_mut(&id) else { continue };
            known.comm = None;
            known.device = None;
            known.state = IdState::DeviceRemoval;
            self.notify_type(id, CmaEventType::DeviceRemoval);
        }
        for id in self.ids.values_mut() {
            id.listens_on.retain(|on| *on != key);
        }
    }

    /// Processes a MAD that arrived at a device's queue pair 1.
    pub fn receive(&mut self, now: Time, key: DeviceKey, path: crate::cm::CmPath, mad: &[u8]) {
        if let Some(device) = self.devices.get_mut(&key) {
            device.manager.receive(now, path, mad);
            self.process_events(now, key);
        }
    }

    /// Performs retransmissions and timeouts that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due = |device: &CmaDevice| device.manager.next_deadline().is_some_and(|at| at <= now);
        let due: Vec<DeviceKey> =
            self.devices.iter().filter(|(_, device)| due(device)).map(|(key, _)| *key).collect();
        for key in due {
            if let Some(device) = self.devices.get_mut(&key) {
                device.manager.handle_timeout(now);
            }
            self.process_events(now, key);
        }
    }

    /// Returns the time at which [`Cma::handle_timeout`] must be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.devices.values().filter_map(|device| device.manager.next_deadline()).min()
    }

    /// Returns the next MAD to send, and its device.
    pub fn poll_transmit(&mut self) -> Option<(DeviceKey, CmTransmit)> {
        self.devices
            .iter_mut()
            .find_map(|(key, device)| Some((*key, device.manager.poll_transmit()?)))
    }

    /// Returns a changed message for the end of the process, see
    /// [`ConnectionManager::poll_last_message`].
    pub fn poll_last_message(&mut self) -> Option<(DeviceKey, CommId, Option<CmTransmit>)> {
        self.devices.iter_mut().find_map(|(key, device)| {
            let (id, message) = device.manager.poll_last_message()?;
            Some((*key, id, message))
        })
    }

    /// Returns the connection manager of a device, for its counters.
    #[must_use]
    pub fn manager(&self, key: DeviceKey) -> Option<&ConnectionManager> {
        self.devices.get(&key).map(|device| &device.manager)
    }

    /// Returns the number of identifiers.
    #[must_use]
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }

    fn id(&self, id: CmaId) -> Result<&Id, CmaError> {
        self.ids.get(&id).ok_or(CmaError::UnknownId(id))
    }

    fn id_mut(&mut self, id: CmaId) -> Result<&mut Id, CmaError> {
        self.ids.get_mut(&id).ok_or(CmaError::UnknownId(id))
    }

    /// Returns the device of an identifier, its connection's id, and the device's entry.
    fn connection(&mut self, id: CmaId) -> Result<(DeviceKey, CommId, &mut CmaDevice), CmaError> {
        let known = self.id(id)?;
        let state = known.state;
        let (key, comm) =
            known.device.zip(known.comm).ok_or(CmaError::NoConnection { id, state })?;
        let device = self.devices.get_mut(&key).ok_or(CmaError::NoConnection { id, state })?;
        Ok((key, comm, device))
    }
}

impl std::fmt::Debug for Cma {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cma")
            .field("ids", &self.ids.len())
            .field("devices", &self.devices.len())
            .finish()
    }
}
