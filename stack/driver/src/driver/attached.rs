//! The part of an engine in the connections of its process. In a build without the feature `cm`,
//! `no_connections` has these names.

use std::net::IpAddr;
use std::time::Duration;

use urxe_wire::Gid;
use urxe_wire::mad::{Guid, ServiceId};

use super::connections::Connections;
use super::management::ReceivedMad;
use super::outgoing_mads::{self, OutgoingMad, Uplink};
use super::shared::Shared;
use crate::cm::CmConfig;
use crate::cma::{DeviceKey, LocalDevice};
use crate::cq::Wake;
use crate::link::ResolvedLink;
use crate::listing::Listing;
use crate::port::sharing::ListenError;
use crate::qp::attr::PathMtu;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::time::Time;

/// Whether an engine keeps MADs for its connections or for the program.
pub(super) const KEEPS_MADS: bool = true;

/// The connections that an engine is part of, and its key there.
pub(super) struct Attached {
    connections: Arc<Connections>,
    key: DeviceKey,
}

impl Attached {
    pub fn key(&self) -> DeviceKey {
        self.key
    }

    /// Passes MADs that arrived for this process to the connections.
    pub fn receive(&self, mads: impl Iterator<Item = ReceivedMad>) {
        self.connections.receive(self.key, mads);
    }

    /// Handles the timeouts of the connections that are due.
    pub fn handle_timeout(&self, now: Time) {
        self.connections.handle_timeout(now);
    }

    /// Returns the next deadline of the connections.
    pub fn deadline(&self) -> Time {
        self.connections.deadline()
    }

    /// Returns the connections of the engine.
    pub fn listing(&self) -> Option<Listing> {
        self.connections.listing(self.key)
    }

    /// Removes the engine from the connections.
    pub fn detach(&self) {
        self.connections.detach(self.key);
    }
}

/// Adds an engine to `connections`, if there are any. Its communication ids follow from `seed`.
pub(super) fn attach(
    shared: &Arc<Shared>,
    link: &ResolvedLink,
    connections: Option<&Arc<Connections>>,
    (seed, watcher, keep_alive): (u64, bool, Option<Duration>),
) {
    let Some(connections) = connections else { return };
    shared.ports.has_connection_manager.store(true, Ordering::Relaxed);
    let interface = link.interface.index;
    let device = EngineDevice { shared: Arc::clone(shared), interface };
    let guid = Guid(u64::from_be_bytes(link.node_guid.to_bytes()));
    let config = CmConfig {
        reports_last_messages: watcher,
        keep_alive_ns: keep_alive.map(|period| period.as_nanos() as u64),
        ..CmConfig::new(shared.ports.slot(), seed, guid)
    };
    let key = connections.attach(Box::new(device), config, (shared.clone(), interface));
    let connections = Arc::clone(connections);
    shared.attached.get_or_init(|| Attached { connections, key });
}

/// The part of an engine that the core of the connections uses.
struct EngineDevice {
    shared: Arc<Shared>,
    interface: u32,
}

impl LocalDevice for EngineDevice {
    fn gids(&self) -> Vec<Gid> {
        self.shared.device.gids()
    }

    fn path_mtu(&self) -> PathMtu {
        self.shared.device.active_mtu()
    }

    fn interface(&self) -> u32 {
        self.interface
    }

    fn claim(&self, address: Option<IpAddr>, service: ServiceId) -> Result<(), ListenError> {
        self.shared.ports.listen_at(address, service.0)
    }

    fn begin_listening(&self, address: Option<IpAddr>, service: ServiceId) {
        self.shared.ports.begin_listening(address, service.0);
    }

    fn release(&self, address: Option<IpAddr>, service: ServiceId) {
        self.shared.ports.unlisten_at(address, service.0);
    }
}

impl Uplink for Shared {
    fn send_mads(&self, mads: &[OutgoingMad], bytes: &mut Vec<u8>) {
        outgoing_mads::send_through(&self.ports, mads, bytes);
    }

    fn wake(&self) {
        self.waker.wake();
    }
}
