//! Why there is no connection, or nothing to listen with.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::cma::CmaError;
use urxe_stack::device::{CreateCqError, CreateQpError, ModifyError};
use urxe_stack::qp::wr::PostError;
use urxe_wire::mad::{RejReason, SidrStatus};

use crate::cq::WaitError;
use crate::device::OpenError;
use crate::memory::AllocateError;
use crate::pd::AllocPdError;
use crate::{CreateAhError, DeviceInfo};

/// Why there is no device to connect or listen with.
#[derive(Debug, thiserror::Error)]
pub enum NoServiceError {
    /// The list of devices, or the last of those that could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The list of devices is empty.
    #[error(
        "no device is configured: `urxe link add rxe0 INTERFACE` makes one, or name one with `device`"
    )]
    NothingConfigured,
    /// The device is of a simulated network.
    #[error(
        "the device is of a simulated network, which has no connection manager: use `QueuePair::connect`"
    )]
    Simulated,
}

impl NoServiceError {
    /// The nearest errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open(error) => error.errno(),
            Self::NothingConfigured => libc::ENODEV,
            Self::Simulated => libc::EOPNOTSUPP,
        }
    }
}

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A name that stands for no address.
    #[error("the address to listen on: {0}")]
    Address(#[source] io::Error),
    /// No device.
    #[error(transparent)]
    Service(#[from] NoServiceError),
    /// The port is taken, by this process or another.
    #[error("port {} is in use: {reason}; choose another, or 0 for any", addr.port())]
    InUse {
        /// What was asked for.
        addr: SocketAddr,
        /// By whom.
        reason: CmaError,
    },
    /// The address is not of this host, or of none of its devices.
    #[error("{reason}{}", devices_there_are())]
    NoDevice {
        /// What was asked for.
        addr: SocketAddr,
        /// Which of the two.
        reason: CmaError,
    },
    /// Anything else that the connection manager refuses.
    #[error(transparent)]
    Cm(CmaError),
}

impl ListenError {
    pub(super) fn new(addr: SocketAddr, reason: CmaError) -> Self {
        match reason {
            CmaError::PortTaken { .. } => Self::InUse { addr, reason },
            CmaError::Claim(_) if reason.errno() == libc::EADDRINUSE => {
                Self::InUse { addr, reason }
            }
            CmaError::NotLocal { .. } | CmaError::NoDevice { .. } => {
                Self::NoDevice { addr, reason }
            }
            other => Self::Cm(other),
        }
    }

    /// The errno that `rdma_bind_addr` and `rdma_listen` set.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Address(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
            Self::Service(error) => error.errno(),
            Self::InUse { .. } => libc::EADDRINUSE,
            Self::NoDevice { reason, .. } | Self::Cm(reason) => reason.errno(),
        }
    }
}

/// For who has no device where one is needed.
fn devices_there_are() -> String {
    let names = |devices: Vec<DeviceInfo>| {
        devices.iter().map(DeviceInfo::to_string).collect::<Vec<_>>().join(", ")
    };
    match crate::devices() {
        Ok(devices) => {
            format!("; configured: {} (`urxe link add NAME ADDRESS` adds one)", names(devices))
        }
        Err(_) => String::new(),
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A name that stands for no address.
    #[error("the address to connect to: {0}")]
    Address(#[source] io::Error),
    /// No device.
    #[error(transparent)]
    Service(#[from] NoServiceError),
    /// The system knows no way to the peer.
    #[error("no way leads to {}: {errno}", peer.ip())]
    NoRoute {
        /// The peer.
        peer: SocketAddr,
        /// The system's reason.
        errno: Errno,
    },
    /// There is a way, but it begins at no device.
    #[error("the way to {} begins at no RDMA device{}", peer.ip(), devices_there_are())]
    NoDevice {
        /// The peer.
        peer: SocketAddr,
    },
    /// A number that has no room in the messages.
    #[error("{option} is {given}, at most {max} is allowed")]
    Option {
        /// Which.
        option: &'static str,
        /// What was given.
        given: u32,
        /// The most.
        max: u32,
    },
    /// An object of another device than the connection's.
    #[error("the {object} is of another device than the one towards {peer}")]
    OtherDevice {
        /// Which object of the options.
        object: &'static str,
        /// The peer's address.
        peer: IpAddr,
    },
    /// No protection domain.
    #[error(transparent)]
    Pd(#[from] AllocPdError),
    /// No completion queue.
    #[error(transparent)]
    Cq(#[from] CreateCqError),
    /// No queue pair.
    #[error(transparent)]
    Qp(#[from] CreateQpError),
    /// No memory for messages.
    #[error(transparent)]
    Memory(#[from] AllocateError),
    /// A receive was not taken.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The queue pair did not go into the state that the connection needs.
    #[error("the queue pair: {0}")]
    Modify(#[from] ModifyError),
    /// The peer refused.
    #[error("{peer} refused the connection: {reason}{}", hint(*peer, *reason))]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Its reason; a program's own refusal is [`RejReason::CONSUMER_DEFINED`].
        reason: RejReason,
        /// What its program says about it, with the zeros behind that fill the message.
        private_data: Vec<u8>,
    },
    /// The peer does not answer.
    #[error(
        "{peer} does not answer: is an RDMA device on that address, and does UDP port 4791 pass both ways?"
    )]
    Unreachable {
        /// The peer.
        peer: SocketAddr,
    },
    /// It took longer than [`Options::timeout`](super::Options::timeout) allows.
    #[error("{peer} has not answered within {after:?}")]
    TimedOut {
        /// The peer.
        peer: SocketAddr,
        /// The time allowed.
        after: Duration,
    },
    /// The request that was to be accepted is gone: its peer has given up.
    #[error("{peer} has taken its request back")]
    Withdrawn {
        /// The peer.
        peer: SocketAddr,
    },
    /// The device went.
    #[error("the device of the connection is gone")]
    DeviceRemoved,
    /// Anything else that the connection manager refuses.
    #[error(transparent)]
    Cm(CmaError),
    /// The thread could not wait.
    #[error(transparent)]
    Wait(WaitError),
}

fn hint(peer: SocketAddr, reason: RejReason) -> String {
    match reason {
        RejReason::INVALID_SERVICE_ID => format!("; nobody listens on port {} there", peer.port()),
        RejReason::STALE_CONN => {
            "; it still has a former connection of this queue pair: try again".into()
        }
        _ => String::new(),
    }
}

impl ConnectError {
    /// The errno that librdmacm's synchronous calls set.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Address(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
            Self::Service(error) => error.errno(),
            Self::NoRoute { errno, .. } => errno.raw_os_error(),
            Self::NoDevice { .. } | Self::DeviceRemoved => libc::ENODEV,
            Self::Option { .. } | Self::OtherDevice { .. } => libc::EINVAL,
            Self::Pd(error) => error.errno(),
            Self::Cq(error) => error.errno(),
            Self::Qp(error) => error.errno(),
            Self::Memory(error) => error.errno(),
            Self::Post(error) => error.errno(),
            Self::Modify(error) => error.errno(),
            Self::Rejected { .. } => libc::ECONNREFUSED,
            Self::Unreachable { .. } | Self::TimedOut { .. } => libc::ETIMEDOUT,
            Self::Withdrawn { .. } => libc::ECONNABORTED,
            Self::Cm(error) => error.errno(),
            Self::Wait(error) => error.errno(),
        }
    }
}

/// Why there is no way to a datagram service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// As when connecting: addresses, devices, time.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The peer answered that there is none.
    #[error("{peer} offers no datagram service: {status}{}", no_service(*peer, *status))]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// Its reason.
        status: SidrStatus,
        /// What its program says about it, with the zeros behind that fill the message.
        private_data: Vec<u8>,
    },
    /// The way there is none.
    #[error(transparent)]
    Ah(#[from] CreateAhError),
}

impl ResolveError {
    /// The nearest errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Connect(error) => error.errno(),
            Self::Refused { .. } => libc::ECONNREFUSED,
            Self::Ah(error) => error.errno(),
        }
    }
}

fn no_service(peer: SocketAddr, status: SidrStatus) -> String {
    match status {
        SidrStatus::UNSUPPORTED => format!("; nobody listens on port {} there", peer.port()),
        _ => String::new(),
    }
}
