//! The RDMA IP CM service (IBTA annex A11): connections by IP addresses and ports, as the kernel's
//! `rdma_cm` gives them to programs.
//!
//! A [`Cma`] is what one process has for all its devices. It holds identifiers (`struct
//! rdma_cm_id`), each on a path from IDLE by addresses and routes to a connection, and one
//! [`ConnectionManager`] a device, which talks to the peers. Like the rest of the core it is
//! sans-IO: calls, MADs and time go in; MADs, events and a deadline come out. What only the system
//! and the devices know it asks through [`System`] and [`LocalDevice`].
//!
//! ```text
//!  IDLE ──bind──> ADDR_BOUND ──listen──> LISTEN ──a request──> (a new identifier in CONNECT)
//!    └──resolve_addr──┴──> ADDR_QUERY ─> ADDR_RESOLVED ─> ROUTE_RESOLVED ──connect──> CONNECT ──> DISCONNECT
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `id` | an identifier, its states and options |
//! | `ports` | port spaces: who is bound to which port |
//! | `address` | binding, resolving addresses and routes |
//! | `listen` | listening, on one device or all |
//! | `connect`, `datagram` | connecting, accepting, refusing, disconnecting |
//! | `incoming` | what the connection manager tells, and what becomes of it |
//! | `attributes` | the queue pair's attributes for each state |
//! | `multicast` | groups |
//! | [`event`], `channel` | what programs are told, and where |
//! | `listing` | what others are told of all this |
//! | `error` | why a call fails |
//!
//! Queue pairs are the callers': who accepts or connects moves its queue pair by [`Cma::qp_attr`],
//! as librdmacm does. Behaviour: the kernel's `drivers/infiniband/core/{cma,ucma}.c`.

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
pub use self::listing::{ListedId, Listing, ListingError};
pub use self::multicast::Membership;
use self::ports::Ports;
use crate::cm::{CmConfig, CmTransmit, ConnectionManager, ListenerId};
use urxe_types::attr::PathMtu;
use urxe_types::owner::ListenError;
use urxe_types::rng::Rng;
use urxe_types::time::Time;

/// What a device says of itself, and does for the port spaces.
pub trait LocalDevice: Send + Sync {
    /// Its GID table as it is now.
    fn gids(&self) -> Vec<Gid>;

    /// The largest path MTU of its port.
    fn path_mtu(&self) -> PathMtu;

    /// The index of its network interface.
    fn interface(&self) -> u32;

    /// Claims a service id among the processes of `address`, or of all the device's addresses.
    ///
    /// # Errors
    /// [`ListenError`].
    fn claim(&self, address: Option<IpAddr>, service: ServiceId) -> Result<(), ListenError>;

    /// Gives it back.
    fn release(&self, address: Option<IpAddr>, service: ServiceId);
}

/// What only the system knows.
pub trait System {
    /// The address that packets to `to` leave this host from; `from` if that is given and there is
    /// a way.
    ///
    /// # Errors
    /// The system's error number: there is no way.
    fn source_for(&self, from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32>;

    /// The index of the interface that has an address; `None` if this host does not have it.
    fn interface_of(&self, address: IpAddr) -> Option<u32>;

    /// Whether who is bound to all of IPv6 is not to be reached by IPv4 (`net.ipv6.bindv6only`).
    fn binds_v6_only(&self) -> bool;
}

/// Names a device of a [`Cma`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceKey(u32);

/// A device, with its connection manager.
struct CmaDevice {
    local: Box<dyn LocalDevice>,
    manager: ConnectionManager,
    /// Whose communications they are.
    by_comm: FxHashMap<CommId, CmaId>,
    /// What is listened for, and by how many identifiers.
    listening: HashMap<ServiceId, (ListenerId, usize)>,
}

/// See the module.
pub struct Cma {
    devices: BTreeMap<DeviceKey, CmaDevice>,
    next_device: u32,
    ids: FxHashMap<CmaId, Id>,
    next_id: u64,
    ports: Ports,
    channels: Channels,
    rng: Rng,
}

impl Cma {
    /// Without devices and identifiers. Ports and packet sequence numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            devices: BTreeMap::new(),
            next_device: 0,
            ids: FxHashMap::default(),
            next_id: 1,
            ports: Ports::default(),
            channels: Channels::default(),
            rng: Rng::stream(seed, 0x636d_615f),
        }
    }

    /// A device that is there from now on. Who listens on all addresses listens on it, too.
    pub fn attach(&mut self, local: Box<dyn LocalDevice>, config: CmConfig) -> DeviceKey {
        let key = DeviceKey(self.next_device);
        self.next_device += 1;
        let manager = ConnectionManager::new(config);
        self.devices.insert(
            key,
            CmaDevice { local, manager, by_comm: FxHashMap::default(), listening: HashMap::new() },
        );
        self.listen_on_new_device(key);
        key
    }

    /// A device goes: its identifiers are told (`RDMA_CM_EVENT_DEVICE_REMOVAL`), and connect no
    /// more.
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

    /// A MAD that came to a device's queue pair 1.
    pub fn receive(&mut self, now: Time, key: DeviceKey, path: crate::cm::CmPath, mad: &[u8]) {
        if let Some(device) = self.devices.get_mut(&key) {
            device.manager.receive(now, path, mad);
            self.process_events(now, key);
        }
    }

    /// Repeats and gives up what is due.
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

    /// When [`Cma::handle_timeout`] is to be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.devices.values().filter_map(|device| device.manager.next_deadline()).min()
    }

    /// The next MAD to send, and from which device.
    pub fn poll_transmit(&mut self) -> Option<(DeviceKey, CmTransmit)> {
        self.devices
            .iter_mut()
            .find_map(|(key, device)| Some((*key, device.manager.poll_transmit()?)))
    }

    /// The connection manager of a device, for looking at its counters.
    #[must_use]
    pub fn manager(&self, key: DeviceKey) -> Option<&ConnectionManager> {
        self.devices.get(&key).map(|device| &device.manager)
    }

    /// How many identifiers there are.
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

    /// The identifier's device and communication, and who manages it.
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
