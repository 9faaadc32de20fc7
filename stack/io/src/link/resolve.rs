//! Resolves a link on this machine: its addresses, GIDs, GUID and path MTU.

use std::net::IpAddr;

use super::gid::{self, GidEntry, Guid};
use super::interface::{Interface, OperState, interfaces};
use super::{LinkError, LinkSpec, Source};
use urxe_types::attr::PathMtu;

#[cfg(test)]
mod tests;

/// The most bytes of an IP packet that are not payload: IPv6 40, UDP 8, BTH 12, XRCETH 4, RETH 16,
/// ImmDt 4, ICRC 4.
pub const MAX_HEADERS: u32 = 88;

/// The smallest interface MTU of a device, in bytes.
pub const MIN_INTERFACE_MTU: u32 = PathMtu::Mtu256.bytes() as u32 + MAX_HEADERS;

/// The current state of a link on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedLink {
    /// The link that was resolved.
    pub spec: LinkSpec,
    /// The interface that has the addresses.
    pub interface: Interface,
    /// The device's own addresses, at least one: its sockets bind to them.
    pub addresses: Vec<IpAddr>,
    /// The GID table, at least one entry.
    pub gids: Vec<GidEntry>,
    /// The device's GUID.
    pub node_guid: Guid,
    /// The largest path MTU whose packets fit the interface.
    pub path_mtu: PathMtu,
}

impl ResolvedLink {
    /// Returns whether the port is active: the interface is up and has a carrier.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.interface.state == OperState::Up
    }
}

/// Returns the largest path MTU whose packets always fit an interface MTU; `None` below
/// [`MIN_INTERFACE_MTU`].
///
/// 1500 gives 1024; 9000 and 65536 give 4096.
#[must_use]
pub fn path_mtu_for(mtu_bytes: u32) -> Option<PathMtu> {
    let payload = mtu_bytes.checked_sub(MAX_HEADERS)?;
    PathMtu::at_most(usize::try_from(payload).unwrap_or(usize::MAX))
}

/// Resolves `spec` on this machine.
///
/// # Errors
/// [`LinkError`] if the machine has no such address or interface, the interface has no address, or
/// its MTU is too small.
pub fn resolve(spec: &LinkSpec) -> Result<ResolvedLink, LinkError> {
    resolve_on(spec, &interfaces()?)
}

/// Resolves `spec` on a machine with these interfaces.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_on(spec: &LinkSpec, interfaces: &[Interface]) -> Result<ResolvedLink, LinkError> {
    let (interface, addresses, gids) = match &spec.source {
        Source::Address(address) => {
            let address = address.to_canonical();
            let interface = interface_with(address, interfaces)?;
            (interface, vec![address], gid::table_of_address(address))
        }
        Source::Interface(name) => {
            let interface = interface_named(name, interfaces)?;
            let addresses: Vec<IpAddr> = interface.addresses.iter().map(|ip| ip.address).collect();
            let gids = gid::table_of_interface(interface.mac, &addresses);
            (interface, addresses, gids)
        }
    };
    let Some(&first) = addresses.first() else {
        return Err(LinkError::NoAddress { interface: interface.name.clone() });
    };
    let Some(path_mtu) = path_mtu_for(interface.mtu_bytes) else {
        return Err(LinkError::MtuTooSmall {
            interface: interface.name.clone(),
            mtu_bytes: interface.mtu_bytes,
        });
    };
    let mut interface = interface.clone();
    if let Some(profile) = spec.profile {
        interface.speed_mbps = Some(profile.speed_mbps);
    }
    let node_guid = interface.mac.map_or_else(|| Guid::from_address(first), Guid::from_mac);
    Ok(ResolvedLink { spec: spec.clone(), interface, addresses, gids, node_guid, path_mtu })
}

fn interface_named<'a>(
    name: &str,
    interfaces: &'a [Interface],
) -> Result<&'a Interface, LinkError> {
    interfaces.iter().find(|interface| interface.name == name).ok_or_else(|| {
        LinkError::NoSuchInterface {
            given: name.to_owned(),
            existing: interfaces.iter().map(|interface| interface.name.clone()).collect(),
        }
    })
}

/// Returns the interface that has `address`. A link-local address of several interfaces is
/// ambiguous.
fn interface_with(address: IpAddr, interfaces: &[Interface]) -> Result<&Interface, LinkError> {
    if !gid::is_unicast(address) {
        return Err(LinkError::NotUnicast { given: address });
    }
    let having: Vec<&Interface> =
        interfaces.iter().filter(|interface| interface.has(address)).collect();
    match having[..] {
        [] => Err(LinkError::NoSuchAddress {
            given: address,
            existing: interfaces.iter().flat_map(|i| &i.addresses).map(|ip| ip.address).collect(),
        }),
        [interface] => Ok(interface),
        [interface, ..] if !is_link_local(address) => Ok(interface),
        _ => Err(LinkError::AmbiguousAddress {
            given: address,
            interfaces: having.iter().map(|interface| interface.name.clone()).collect(),
        }),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
