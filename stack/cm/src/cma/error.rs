//! Why a call fails.

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::PortSpace;

use super::{CmaId, IdState};
use crate::cm::CmError;
use crate::cm::table::CmState;
use urxe_types::attr::QpState;
use urxe_types::owner::ListenError;

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmaError {
    /// There is no such identifier.
    #[error("there is no such identifier: {0:?}")]
    UnknownId(CmaId),
    /// There is no such channel.
    #[error("there is no such event channel")]
    UnknownChannel,
    /// The call has no place in the identifier's state.
    #[error("the identifier is in {state}: it cannot {call}")]
    State {
        /// The identifier.
        id: CmaId,
        /// Its state.
        state: IdState,
        /// What was asked for.
        call: &'static str,
    },
    /// It has no communication: it has not connected, or its device is gone.
    #[error("the identifier is in {state} and has no connection")]
    NoCommunication {
        /// The identifier.
        id: CmaId,
        /// Its state.
        state: IdState,
    },
    /// The address is no host's address of this machine.
    #[error("{ip} is no address of this host")]
    NotLocal {
        /// The address.
        ip: IpAddr,
    },
    /// The address is this host's, but no device has it.
    #[error("{ip} is an address of this host, but of no RDMA device")]
    NoDevice {
        /// The address.
        ip: IpAddr,
    },
    /// The system knows no way to an address.
    #[error("there is no way to {dst}: {errno}")]
    NoRoute {
        /// The address.
        dst: SocketAddr,
        /// What the system says.
        errno: rustix::io::Errno,
    },
    /// Source and destination are of different IP versions.
    #[error("the identifier is bound to an address of the other IP version than {dst}")]
    Families {
        /// The destination.
        dst: SocketAddr,
    },
    /// Another identifier of this process has the port.
    #[error("port {} of {space} is taken by another identifier of this process", addr.port())]
    PortTaken {
        /// The address and port.
        addr: SocketAddr,
        /// The port space.
        space: PortSpace,
        /// The kernel's number for it, which depends on wildcards.
        errno: i32,
    },
    /// All ports that nobody asks for by number are taken.
    #[error("no port of {space} is free")]
    NoPortLeft {
        /// The port space.
        space: PortSpace,
    },
    /// The port is claimed by another process.
    #[error(transparent)]
    Claim(#[from] ListenError),
    /// Private data that does not fit.
    #[error("{given} bytes of private data, at most {max} are allowed")]
    PrivateData {
        /// Bytes given.
        given: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// Such queue pairs do not connect.
    #[error("a queue pair in {0} takes no attributes from a connection")]
    QpState(QpState),
    /// Nothing is left of the connection that it would be an attribute of.
    #[error("the connection is in {0}, where a queue pair takes no attributes from it")]
    CommState(CmState),
    /// An address that is no group.
    #[error("{0} is no multicast address")]
    NoGroup(IpAddr),
    /// A group that the identifier is not in.
    #[error("the identifier is no member of this group")]
    NotJoined,
    /// The connection manager.
    #[error(transparent)]
    Cm(#[from] CmError),
}

impl CmaError {
    /// What librdmacm's functions set `errno` to.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::UnknownId(_) | Self::UnknownChannel => libc::ENOENT,
            Self::State { .. }
            | Self::NoCommunication { .. }
            | Self::Families { .. }
            | Self::PrivateData { .. }
            | Self::QpState(_)
            | Self::CommState(_)
            | Self::NoGroup(_) => libc::EINVAL,
            Self::NotLocal { .. } | Self::NoPortLeft { .. } | Self::NotJoined => {
                libc::EADDRNOTAVAIL
            }
            Self::NoDevice { .. } => libc::ENODEV,
            Self::PortTaken { errno, .. } => *errno,
            Self::NoRoute { errno, .. } => errno.raw_os_error(),
            Self::Claim(error) => error.errno(),
            Self::Cm(error) => error.errno(),
        }
    }
}
