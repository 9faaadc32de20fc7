//! The numbers that tie messages to communications: communication ids, transaction ids, service
//! ids.
//!
//! A service id of the RDMA IP CM service (IBTA annex A11) holds a port space and a port:
//!
//! ```text
//!  63                       32 31          16 15           0
//! +---------------------------+--------------+--------------+
//! |             0             |  port space  |     port     |
//! +---------------------------+--------------+--------------+
//! ```

use std::fmt;

/// Names a communication within one connection manager: what the peer must say to mean it (IBTA
/// 12.10.1). In a SIDR_REQ and its reply it is the request id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct CommId(pub u32);

impl CommId {
    /// No communication: what a REJ says that comes before one exists.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// Ties an answer to its question (IBTA 13.4.6.4): an answer repeats the id of the REQ, DREQ, LAP
/// or SIDR_REQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct TransactionId(pub u64);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// A GUID of a channel adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0.to_be_bytes();
        write!(f, "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{g:02x}:{h:02x}{i:02x}")
    }
}

/// What a listener listens for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service id of a port, as the kernel's `rdma_get_service_id` makes it.
    #[must_use]
    pub const fn new(space: PortSpace, port: u16) -> Self {
        Self((space.0 as u64) << 16 | port as u64)
    }

    /// Port space and port, if the id is of the RDMA IP CM service.
    #[must_use]
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        match self.0 >> 16 {
            space @ 1..=0xffff => Some((PortSpace(space as u16), self.0 as u16)),
            _ => None,
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((space, port)) if space.name().is_some() => write!(f, "{space}:{port}"),
            _ => write!(f, "0x{:016x}", self.0),
        }
    }
}

/// Whose ports they are: `enum rdma_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PortSpace(pub u16);

impl PortSpace {
    /// IP over InfiniBand.
    pub const IPOIB: Self = Self(0x0002);
    /// Connections.
    pub const TCP: Self = Self(0x0106);
    /// Datagrams, with [`PortSpace::UDP_QKEY`].
    pub const UDP: Self = Self(0x0111);
    /// Any service of InfiniBand.
    pub const IB: Self = Self(0x013f);

    /// The queue key of datagram queue pairs in [`PortSpace::UDP`].
    pub const UDP_QKEY: crate::QKey = crate::QKey(0x0123_4567);

    /// Its name, if it is one of librdmacm's.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::IPOIB => Some("IPOIB"),
            Self::TCP => Some("TCP"),
            Self::UDP => Some("UDP"),
            Self::IB => Some("IB"),
            _ => None,
        }
    }
}

impl fmt::Display for PortSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "0x{:04x}", self.0),
        }
    }
}
