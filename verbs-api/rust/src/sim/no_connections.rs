//! The place of `connections` in a build without the feature `cm`: hosts without connections.

use std::net::IpAddr;
use std::sync::Arc;

use urxe_stack::device::Device as Core;
use urxe_stack::link::Guid;
use urxe_stack::port::sim::DeviceHost;

use super::DeviceOptions;
use super::node::Shared;
use crate::cm::Service;

/// A device as a host of the fabric.
pub(super) type Host = DeviceHost;

/// Nothing to remove the device from.
pub(super) struct Detach;

/// Returns the device `core` as a host.
pub(super) fn host(
    core: &Arc<Core>,
    _: (u64, usize),
    _: (&[IpAddr], Guid),
    _: &DeviceOptions,
    shared: &Shared,
) -> (Host, Detach, Arc<Service>) {
    let service = Service::with(Arc::clone(&shared.ready));
    (DeviceHost::new(Arc::clone(core)), Detach, service)
}
