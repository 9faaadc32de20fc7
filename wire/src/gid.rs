//! GIDs, the addresses of RDMA.
//!
//! In RoCEv2 a GID is an IP address. An IPv4 address is mapped into IPv6 (`::ffff:a.b.c.d`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A global identifier: 16 bytes in network order, as in `union ibv_gid`.
///
/// `Debug` prints the address, and `Display` the long form of `ibv_devinfo`.
///
/// ```
/// use std::net::IpAddr;
/// use urxe_wire::Gid;
///
/// let gid = Gid::from(IpAddr::from([10, 77, 0, 12]));
/// assert_eq!(format!("{gid:?}"), "Gid(10.77.0.12)");
/// assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a4d:000c");
/// assert_eq!(gid.to_string().parse(), Ok(gid));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

/// The error for a text that is not a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a GID: expected an IPv6 or IPv4 address, or 32 hexadecimal digits")]
pub struct GidParseError;

impl Gid {
    /// The zero GID, which means "no GID". `ibv_rc_pingpong` sends it when `-g` is not given.
    pub const ZERO: Self = Self([0; 16]);

    /// Returns the GID of an address. An IPv4 address is mapped into IPv6.
    #[must_use]
    pub const fn from_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// Returns the address: IPv4 for a mapped address, otherwise IPv6.
    #[must_use]
    pub const fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from_bits(u128::from_be_bytes(self.0));
        match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(v6),
        }
    }

    /// Returns the IPv4 address that is mapped into this GID, if any.
    #[must_use]
    pub const fn to_ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0)).to_ipv4_mapped()
    }

    /// Returns whether all bytes are zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Returns whether the GID is a multicast group: ff00::/8, or a mapped 224.0.0.0/4.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        match self.to_ip() {
            IpAddr::V4(v4) => v4.is_multicast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        }
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        Self::from_ip(ip)
    }
}

impl From<Gid> for IpAddr {
    fn from(gid: Gid) -> Self {
        gid.to_ip()
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", self.to_ip())
    }
}

/// Writes eight groups of four digits without abbreviation, as `ibv_devinfo` and sysfs do.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            if i > 0 {
                f.write_str(":")?;
            }
            write!(f, "{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

/// Parses any form of an IPv6 or IPv4 address, or the 32 digits that `ibv_rc_pingpong` exchanges.
impl FromStr for Gid {
    type Err = GidParseError;

    fn from_str(text: &str) -> Result<Self, GidParseError> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::from_ip(ip));
        }
        if text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return u128::from_str_radix(text, 16)
                .map(|v| Self(v.to_be_bytes()))
                .map_err(|_| GidParseError);
        }
        Err(GidParseError)
    }
}

#[cfg(test)]
mod tests;
