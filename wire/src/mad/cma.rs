//! The private data header of the RDMA IP CM service (IBTA annex A11; the kernel's `struct
//! cma_hdr`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::{at, be16, put};

/// The only defined version.
const VERSION: u8 = 0;

/// The header of the RDMA IP CM service (IBTA annex A11; the kernel's `struct cma_hdr`).
///
/// The header is in the first 36 bytes of the private data of a REQ or a SIDR_REQ. It states the IP
/// addresses and the source port.
///
/// ```text
///  0         1          2             4                20               36
/// +---------+----------+-------------+----------------+----------------+
/// | version | IP       | source port | source address | destination    |
/// | 0       | version  |             |                | address        |
/// +---------+----------+-------------+----------------+----------------+
///            high nibble              IPv4: the last 4 bytes of 16
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmaHeader {
    /// Port of the active side.
    pub src_port: u16,
    /// Source and destination address.
    pub addresses: CmaAddresses,
}

/// Source and destination address, both of the same IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CmaAddresses {
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
}

/// The reason why bytes are not a header of the RDMA IP CM service.
///
/// A listener for such a service rejects the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum CmaError {
    /// There are fewer than 36 bytes.
    #[error("the header of the RDMA IP CM service has 36 bytes, but there are {have}")]
    Short { have: usize },
    /// The version is not 0.
    #[error("version {0} of the RDMA IP CM service is not defined, only 0 is")]
    Version(u8),
    /// The IP version is neither 4 nor 6.
    #[error("IP version {0} is not defined, only 4 and 6 are")]
    IpVersion(u8),
}

impl CmaHeader {
    /// The length of the header on the wire, in bytes.
    pub const LEN: usize = 36;

    /// Returns the header for two addresses, or `None` if they have different IP versions.
    #[must_use]
    pub const fn new(src: SocketAddr, dst: IpAddr) -> Option<Self> {
        let addresses = match (src.ip(), dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => CmaAddresses::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => CmaAddresses::V6 { src, dst },
            _ => return None,
        };
        Some(Self { src_port: src.port(), addresses })
    }

    /// Returns address and port of the active side.
    #[must_use]
    pub const fn src(&self) -> SocketAddr {
        let ip = match self.addresses {
            CmaAddresses::V4 { src, .. } => IpAddr::V4(src),
            CmaAddresses::V6 { src, .. } => IpAddr::V6(src),
        };
        SocketAddr::new(ip, self.src_port)
    }

    /// Returns the requested address. The service id contains the port.
    #[must_use]
    pub const fn dst(&self) -> IpAddr {
        match self.addresses {
            CmaAddresses::V4 { dst, .. } => IpAddr::V4(dst),
            CmaAddresses::V6 { dst, .. } => IpAddr::V6(dst),
        }
    }

    /// Reads the header at the start of private data.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if there are too few bytes, or the version or IP version is not
    /// defined.
    pub fn parse(data: &[u8]) -> Result<Self, CmaError> {
        let b: &[u8; Self::LEN] = data.first_chunk().ok_or(CmaError::Short { have: data.len() })?;
        if b[0] != VERSION {
            return Err(CmaError::Version(b[0]));
        }
        let addresses = match b[1] >> 4 {
            4 => {
                CmaAddresses::V4 { src: Ipv4Addr::from(at(b, 16)), dst: Ipv4Addr::from(at(b, 32)) }
            }
            6 => CmaAddresses::V6 { src: Ipv6Addr::from(at(b, 4)), dst: Ipv6Addr::from(at(b, 20)) },
            other => return Err(CmaError::IpVersion(other)),
        };
        Ok(Self { src_port: be16(b, 2), addresses })
    }

    /// Writes the header to `buf`.
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        buf.fill(0);
        buf[0] = VERSION;
        put(buf, 2, self.src_port.to_be_bytes());
        match self.addresses {
            CmaAddresses::V4 { src, dst } => {
                buf[1] = 4 << 4;
                put(buf, 16, src.octets());
                put(buf, 32, dst.octets());
            }
            CmaAddresses::V6 { src, dst } => {
                buf[1] = 6 << 4;
                put(buf, 4, src.octets());
                put(buf, 20, dst.octets());
            }
        }
    }
}

impl std::fmt::Display for CmaHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} > {}", self.src(), self.dst())
    }
}
