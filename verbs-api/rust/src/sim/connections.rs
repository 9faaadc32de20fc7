//! The connections of a simulated host.
//!
//! Each device is a host of its own, as two machines are: it has its own ports and routes. The
//! identifiers, ports and sequence numbers of its connections follow from the seed of the fabric.
//! In a build without the feature `cm`, `no_connections` has these names.

use std::net::IpAddr;
use std::sync::Arc;

use urxe_stack::cm::CmConfig;
use urxe_stack::device::Device as Core;
use urxe_stack::driver::Connections;
pub(super) use urxe_stack::driver::simulated::Detach;
use urxe_stack::driver::simulated::{SimulatedHost, SimulatedRoutes};
use urxe_stack::link::Guid;
use urxe_stack::rng::Rng;
use urxe_wire::mad;

use super::DeviceOptions;
use super::node::Shared;
use crate::cm::Service;

/// Separates the random numbers of ports and of communication ids from those of the network.
const PORT_STREAM: u64 = 0xdef2 << 48;
const ID_STREAM: u64 = 0xdef3 << 48;

/// The slot of the only process of a simulated host.
const SLOT: u8 = 0;

/// A device with its connections as a host of the fabric.
pub(super) type Host = SimulatedHost;

/// Returns the device `core` as the host of `seed` at `index`, and its connection service.
pub(super) fn host(
    core: &Arc<Core>,
    (seed, index): (u64, usize),
    (addresses, guid): (&[IpAddr], Guid),
    options: &DeviceOptions,
    shared: &Shared,
) -> (Host, Detach, Arc<Service>) {
    let random = |stream: u64| Rng::stream(seed, stream | index as u64).next_u64();
    let clock = shared.clock.clone();
    let connections = Arc::new(Connections::with_clock(random(PORT_STREAM), move || clock.now()));
    let keep_alive_ns = options
        .keep_alive
        .map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1_000_000_000));
    let ca_guid = mad::Guid(u64::from_be_bytes(guid.to_bytes()));
    let config = CmConfig { keep_alive_ns, ..CmConfig::new(SLOT, random(ID_STREAM), ca_guid) };
    let wake = shared.work.clone();
    let host = SimulatedHost::new(Arc::clone(core), Arc::clone(&connections), config, wake);
    let detach = Detach::on_drop(&host);
    let routes = Box::new(SimulatedRoutes::new(addresses));
    (host, detach, Service::with(connections, Arc::clone(&shared.ready), routes))
}
