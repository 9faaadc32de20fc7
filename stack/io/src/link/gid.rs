//! A device's GUID, and the table of its GIDs.
//!
//! RoCEv2 uses IP addresses as GIDs ([`Gid`]). The option `-g` of RDMA programs is an index into
//! the table.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use urxe_wire::Gid;

#[cfg(test)]
pub(crate) mod tests;

/// Returns the link-local GID (fe80::/64) with this GUID as interface identifier.
#[must_use]
pub fn link_local(guid: Guid) -> Gid {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&[0xfe, 0x80]);
    bytes[8..].copy_from_slice(&guid.to_bytes());
    Gid(bytes)
}

/// A globally unique identifier of a device: an EUI-64 in the modified form of IPv6 interface
/// identifiers (bit 1 of the first byte inverted), in network order, as in `rdma_rxe`.
///
/// Displayed as four groups of four hexadecimal digits, `5054:00ff:fe12:3456`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid([u8; 8]);

impl Guid {
    /// Makes a GUID of these bytes in network order.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes in network order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// Returns the modified EUI-64 of an Ethernet address (RFC 4291, appendix A).
    #[must_use]
    pub const fn from_mac(mac: [u8; 6]) -> Self {
        Self([mac[0] ^ 0x02, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]])
    }

    /// Returns a GUID for an interface without an Ethernet address, the same on every run.
    ///
    /// - IPv4: `0000:5efe:` and the address, the identifier of RFC 5214, section 6.1, for an
    ///   address that need not be globally unique.
    /// - IPv6: the exclusive-or of the address's two halves.
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                Self([0x00, 0x00, 0x5e, 0xfe, a, b, c, d])
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                let folded = ((bits >> 64) ^ (bits & u128::from(u64::MAX))).to_be_bytes();
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&folded[8..]);
                Self(bytes)
            }
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0;
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{g:02x}:{h:02x}{i:02x}")
    }
}

/// One entry of a device's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Whether the machine has this address. False for an fe80:: GID made from a MAC, if the
    /// interface does not have that address; peers cannot reach that GID.
    pub assigned: bool,
}

/// The entries of a device made from one address. On a NIC with RoCE v1 and v2, index 3 is often
/// the IPv4 address with RoCE v2, and many programs and scripts take index 3 by default.
const ENTRIES_OF_ADDRESS: usize = 4;

/// Returns the table of a device made from one address. The address has the indices 0 to 3, so
/// `-g 0`, `-g 1`, `-g 3` and no option mean the same.
#[must_use]
pub fn table_of_address(address: IpAddr) -> Vec<GidEntry> {
    vec![GidEntry { gid: address.into(), assigned: true }; ENTRIES_OF_ADDRESS]
}

/// Returns the table of a device made from an interface, in rxe's order: fe80:: with the MAC's
/// EUI-64 (if there is a MAC), then each of `addresses` once.
#[must_use]
pub fn table_of_interface(mac: Option<[u8; 6]>, addresses: &[IpAddr]) -> Vec<GidEntry> {
    let mut table: Vec<GidEntry> = Vec::with_capacity(addresses.len() + 1);
    if let Some(mac) = mac {
        let gid = link_local(Guid::from_mac(mac));
        table.push(GidEntry { gid, assigned: addresses.contains(&gid.to_ip()) });
    }
    for &address in addresses {
        let gid = Gid::from(address);
        if !table.iter().any(|entry| entry.gid == gid) {
            table.push(GidEntry { gid, assigned: true });
        }
    }
    table
}

/// Returns whether a device can have this address: neither unspecified, multicast nor broadcast.
#[must_use]
pub fn is_unicast(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && address != IpAddr::V4(Ipv4Addr::BROADCAST)
}
