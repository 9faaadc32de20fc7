//! The network interfaces of the system: their addresses, MTU, MAC, state and speed.
//!
//! `getifaddrs` gives names, indices, flags and addresses of the caller's own network namespace.
//! `/sys/class/net` has MTU and speed, but of the namespace that mounted it, which differs in a
//! namespace entered without a new mount. So `/sys` counts only if it gives the same index and MAC.
//! Otherwise the MTU is read from `/proc/sys/net/ipv6/conf/*/mtu`, which is of the caller's
//! namespace.

use std::net::IpAddr;
use std::path::Path;

use super::LinkError;
use crate::sys::interfaces::{InterfaceAddress, interface_entries, interface_index};

#[cfg(test)]
pub(crate) mod tests;

/// MTU in bytes of an Ethernet interface for which the system has none.
const DEFAULT_MTU: u32 = 1500;
/// MTU in bytes of a loopback interface for which the system has none.
const DEFAULT_LOOPBACK_MTU: u32 = 65_536;

/// Whether an interface carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperState {
    /// Administratively up with a carrier.
    Up,
    /// Administratively up without a carrier.
    NoCarrier,
    /// Administratively down.
    Disabled,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceIp {
    /// The address.
    pub address: IpAddr,
    /// Length of its network prefix in bits.
    pub prefix_len: u8,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// The name, as in `ip link`.
    pub name: String,
    /// The index; 0 if the interface vanished while it was read.
    pub index: u32,
    /// Largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// The Ethernet address, if the interface has one that is not all zeros.
    pub mac: Option<[u8; 6]>,
    /// Whether the interface carries packets.
    pub state: OperState,
    /// Speed in Mb/s, if the driver reports it.
    pub speed_mbps: Option<u32>,
    /// Whether this is the loopback interface.
    pub loopback: bool,
    /// The addresses in the system's order, IPv4 before IPv6.
    pub addresses: Vec<InterfaceIp>,
}

impl Interface {
    /// Returns whether the interface has `address`. Loopback has every address of its prefixes
    /// (127.0.0.0/8).
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|ip| {
            ip.address == address
                || (self.loopback && same_prefix(ip.address, address, ip.prefix_len))
        })
    }
}

/// The number of lanes, as the bit of `active_width` in `struct ibv_port_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkWidth {
    /// One lane.
    One = 1,
    /// Four lanes.
    Four = 2,
}

/// The speed of a lane, as the bit of `active_speed` in `struct ibv_port_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LaneSpeed {
    /// 2.5 Gb/s.
    Sdr = 1,
    /// 10 Gb/s.
    Fdr10 = 8,
    /// 25 Gb/s.
    Edr = 32,
    /// 50 Gb/s.
    Hdr = 64,
    /// 100 Gb/s.
    Ndr = 128,
}

/// Returns the lanes and their speed that give at least `mbps`, with the smallest excess; the
/// smallest of all if the speed is unknown.
#[must_use]
pub fn width_and_speed(mbps: Option<u32>) -> (LinkWidth, LaneSpeed) {
    match mbps.unwrap_or(0) {
        0..=2_500 => (LinkWidth::One, LaneSpeed::Sdr),
        2_501..=10_000 => (LinkWidth::One, LaneSpeed::Fdr10),
        10_001..=25_000 => (LinkWidth::One, LaneSpeed::Edr),
        25_001..=40_000 => (LinkWidth::Four, LaneSpeed::Fdr10),
        40_001..=50_000 => (LinkWidth::One, LaneSpeed::Hdr),
        50_001..=100_000 => (LinkWidth::Four, LaneSpeed::Edr),
        100_001..=200_000 => (LinkWidth::Four, LaneSpeed::Hdr),
        _ => (LinkWidth::Four, LaneSpeed::Ndr),
    }
}

/// Returns all network interfaces of the caller's network namespace, in the system's order.
///
/// # Errors
/// [`LinkError::Interfaces`] if the system does not list them.
pub fn interfaces() -> Result<Vec<Interface>, LinkError> {
    let mut found: Vec<Interface> = Vec::new();
    for entry in interface_entries().map_err(LinkError::Interfaces)? {
        // An IPv4 address with a label is listed under the label, "eth0:1".
        let name = entry.name.split(':').next().unwrap_or_default().to_owned();
        let at = found.iter().position(|interface| interface.name == name).unwrap_or_else(|| {
            found.push(blank(name, entry.flags));
            found.len() - 1
        });
        match entry.address {
            Some(InterfaceAddress::Hardware(mac)) => found[at].mac = mac,
            Some(InterfaceAddress::Ip(address, netmask)) => {
                let prefix_len = netmask.map_or(0, prefix_len);
                found[at].addresses.push(InterfaceIp { address, prefix_len });
            }
            None => {}
        }
    }
    for interface in &mut found {
        complete(interface, Path::new("/sys/class/net"), Path::new("/proc/sys/net/ipv6/conf"));
    }
    Ok(found)
}

fn blank(name: String, flags: i32) -> Interface {
    let loopback = flags & libc::IFF_LOOPBACK != 0;
    let state = if flags & libc::IFF_UP == 0 {
        OperState::Disabled
    } else if flags & libc::IFF_RUNNING != 0 {
        OperState::Up
    } else {
        OperState::NoCarrier
    };
    let index = interface_index(&name).unwrap_or(0);
    let mtu_bytes = if loopback { DEFAULT_LOOPBACK_MTU } else { DEFAULT_MTU };
    Interface {
        name,
        index,
        mtu_bytes,
        mac: None,
        state,
        speed_mbps: None,
        loopback,
        addresses: Vec::new(),
    }
}

fn prefix_len(netmask: IpAddr) -> u8 {
    let ones = match netmask {
        IpAddr::V4(v4) => v4.to_bits().leading_ones(),
        IpAddr::V6(v6) => v6.to_bits().leading_ones(),
    };
    u8::try_from(ones).unwrap_or(0)
}

/// Returns whether the first `prefix_len` bits are equal; false for 0 bits.
fn same_prefix(a: IpAddr, b: IpAddr, prefix_len: u8) -> bool {
    let equal_bits = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    prefix_len > 0 && equal_bits >= u32::from(prefix_len)
}

/// Adds MTU and speed from the files under `sys` (`/sys/class/net`) and `conf`
/// (`/proc/sys/net/ipv6/conf`).
fn complete(interface: &mut Interface, sys: &Path, conf: &Path) {
    let sys = sys.join(&interface.name);
    let number = |path: &Path| {
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok())
    };
    if is_same_interface(interface, &sys) {
        interface.mtu_bytes = number(&sys.join("mtu")).unwrap_or(interface.mtu_bytes);
        // "-1" and 0 both mean unknown.
        interface.speed_mbps = number(&sys.join("speed")).filter(|&mbps| mbps != 0);
    } else if let Some(mtu_bytes) = number(&conf.join(&interface.name).join("mtu")) {
        interface.mtu_bytes = mtu_bytes;
    }
}

/// Returns whether `/sys` describes this interface, not one of the same name in another namespace.
fn is_same_interface(interface: &Interface, sys: &Path) -> bool {
    let text = |file: &str| std::fs::read_to_string(sys.join(file)).unwrap_or_default();
    let same_mac = interface.mac.is_none_or(|mac| text("address").trim() == mac_text(mac));
    text("ifindex").trim() == interface.index.to_string() && same_mac
}

/// Returns a MAC in Linux's notation, `52:54:00:12:34:56`.
#[must_use]
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
