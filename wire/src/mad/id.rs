//! Identifiers of connections, transactions and services.

use std::fmt;

/// Communication id: identifies a connection within one connection manager (IBTA 12.10.1). A peer
/// must name the id to address the connection.
///
/// In a SIDR_REQ and its reply this is the request id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct CommId(pub u32);

impl CommId {
    /// No connection, as in a REJ from a connection manager that has created none.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// Transaction id (IBTA 13.4.6.4). A reply repeats the id of the REQ, DREQ, LAP or SIDR_REQ.
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

/// Service id, for which a listener accepts requests.
///
/// A service id of the RDMA IP CM service (IBTA annex A11) holds a port space and a port:
///
/// ```text
///  63                       32 31          16 15           0
/// +---------------------------+--------------+--------------+
/// |             0             |  port space  |     port     |
/// +---------------------------+--------------+--------------+
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// Returns the service id of a port, as the kernel's `rdma_get_service_id` computes it.
    #[must_use]
    pub const fn new(space: PortSpace, port: u16) -> Self {
        Self((space.0 as u64) << 16 | port as u64)
    }

    /// Returns port space and port, if the id belongs to the RDMA IP CM service.
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

/// A port space of librdmacm (`enum rdma_port_space`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PortSpace(pub u16);

impl PortSpace {
    /// IP over InfiniBand.
    pub const IPOIB: Self = Self(0x0002);
    /// Connected services.
    pub const TCP: Self = Self(0x0106);
    /// Datagram services, with [`PortSpace::UDP_QKEY`].
    pub const UDP: Self = Self(0x0111);
    /// Any InfiniBand service.
    pub const IB: Self = Self(0x013f);

    /// The Q_Key of datagram queue pairs in [`PortSpace::UDP`].
    pub const UDP_QKEY: crate::QKey = crate::QKey(0x0123_4567);

    /// Returns the name, if librdmacm defines the port space.
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
