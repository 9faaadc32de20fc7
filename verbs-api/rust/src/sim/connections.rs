//! The connections of a simulated host.
//!
//! Each device is a host of its own, as two machines are: it has its own ports and routes. The
//! identifiers, ports and sequence numbers of its connections follow from the seed of the fabric.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use urxe_stack::cm::CmConfig;
use urxe_stack::driver::Connections;
use urxe_stack::driver::simulated::SimulatedRoutes;
use urxe_stack::link::Guid;
use urxe_stack::rng::Rng;
use urxe_stack::time::Time;
use urxe_wire::mad;

use crate::cm::Service;
use crate::waker_list::ReadyWakers;

/// Separates the random numbers of ports and of communication ids from those of the network.
const PORT_STREAM: u64 = 0xdef2 << 48;
const ID_STREAM: u64 = 0xdef3 << 48;

/// The slot of the only process of a simulated host.
const SLOT: u8 = 0;

/// Returns the connection service of the host at `index`.
pub(super) fn service(
    (seed, index): (u64, usize),
    addresses: &[IpAddr],
    ready: Arc<ReadyWakers>,
    now: impl Fn() -> Time + Send + Sync + 'static,
) -> Arc<Service> {
    let seed = Rng::stream(seed, PORT_STREAM | index as u64).next_u64();
    let connections = Arc::new(Connections::with_clock(seed, now));
    Service::with(connections, ready, Box::new(SimulatedRoutes::new(addresses)))
}

/// Returns the configuration of the connection manager of the host at `index`.
pub(super) fn config(
    (seed, index): (u64, usize),
    guid: Guid,
    keep_alive: Option<Duration>,
) -> CmConfig {
    let seed = Rng::stream(seed, ID_STREAM | index as u64).next_u64();
    let keep_alive_ns = keep_alive
        .map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1_000_000_000));
    let ca_guid = mad::Guid(u64::from_be_bytes(guid.to_bytes()));
    CmConfig { keep_alive_ns, ..CmConfig::new(SLOT, seed, ca_guid) }
}
