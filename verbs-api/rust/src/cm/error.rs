//! Why there is no connection, or nothing to listen with.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::cma::CmaError;
use urxe_stack::device::{CreateCqError, CreateQpError, ModifyError};
use urxe_stack::qp::work_request::PostError;
use urxe_wire::mad::{RejReason, SidrStatus};

use crate::cq::WaitError;
use crate::device::OpenError;
use crate::memory::AllocateError;
use crate::pd::AllocPdError;
use crate::{CreateAhError, DeviceInfo};

urxe_stack::errors! {
    /// Why there is no device to connect or listen with.
    #[derive(Debug, thiserror::Error)]
    pub enum NoServiceError {
        /// The list of devices, or the last of those that could not be opened.
        #[error(transparent)] Open(#[from] OpenError),
        #[error("no device is configured: `urxe link add rxe0 INTERFACE` makes one, or name one \
                 with `device`")]
        NothingConfigured = ENODEV,
        #[error("the device is of a simulated network, which has no connection manager: use \
                 `QueuePair::connect`")]
        Simulated = EOPNOTSUPP,
    }

    /// Why nothing listens.
    #[derive(Debug, thiserror::Error)]
    pub enum ListenError {
        #[error("the address to listen on: {0}")]
        Address(#[source] io::Error) => |error| error.raw_os_error().unwrap_or(EINVAL),
        /// No device.
        #[error(transparent)] Service(#[from] NoServiceError),
        #[error("port {} is in use: {reason}; choose another, or 0 for any", addr.port())]
        InUse { addr: SocketAddr, reason: CmaError } = EADDRINUSE,
        /// The address is not of this host, or of none of its devices.
        #[error("{reason}{}", devices_there_are())]
        NoDevice { addr: SocketAddr, reason: CmaError } = reason.errno(),
        /// Anything else that the connection manager refuses.
        #[error(transparent)] Cm(CmaError),
    }
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

urxe_stack::errors! {
    /// Why there is no connection.
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum ConnectError {
        #[error("the address to connect to: {0}")]
        Address(#[source] io::Error) => |error| error.raw_os_error().unwrap_or(EINVAL),
        /// No device.
        #[error(transparent)] Service(#[from] NoServiceError),
        #[error("no way leads to {}: {errno}", peer.ip())]
        NoRoute { peer: SocketAddr, errno: Errno } = errno.raw_os_error(),
        /// There is a way, but it begins at no device.
        #[error("the way to {} begins at no RDMA device{}", peer.ip(), devices_there_are())]
        NoDevice { peer: SocketAddr } = ENODEV,
        #[error("{option} is {given}, at most {max} is allowed")]
        Option { option: &'static str, given: u32, max: u32 } = EINVAL,
        #[error("the {object} is of another device than the one towards {peer}")]
        OtherDevice { object: &'static str, peer: IpAddr } = EINVAL,
        /// No protection domain.
        #[error(transparent)] Pd(#[from] AllocPdError),
        /// No completion queue.
        #[error(transparent)] Cq(#[from] CreateCqError),
        /// No queue pair.
        #[error(transparent)] Qp(#[from] CreateQpError),
        /// No memory for messages.
        #[error(transparent)] Memory(#[from] AllocateError),
        /// A receive was not taken.
        #[error(transparent)] Post(#[from] PostError),
        /// The queue pair did not go into the state that the connection needs.
        #[error("the queue pair: {0}")]
        Modify(#[from] ModifyError),
        /// `reason`: its reason; a program's own refusal is [`RejReason::CONSUMER_DEFINED`].
        ///
        /// `private_data`: what its program says about it, with the zeros behind that fill the
        /// message.
        #[error("{peer} refused the connection: {reason}{}", hint(*peer, *reason))]
        Rejected { peer: SocketAddr, reason: RejReason, private_data: Vec<u8> } = ECONNREFUSED,
        #[error("{peer} does not answer: is an RDMA device on that address, and does UDP port 4791 \
                 pass both ways?")]
        Unreachable { peer: SocketAddr } = ETIMEDOUT,
        /// It took longer than [`Options::timeout`](super::Options::timeout) allows.
        #[error("{peer} has not answered within {after:?}")]
        TimedOut { peer: SocketAddr, after: Duration } = ETIMEDOUT,
        /// The request that was to be accepted is gone: its peer has given up.
        #[error("{peer} has taken its request back")]
        Withdrawn { peer: SocketAddr } = ECONNABORTED,
        #[error("the device of the connection is gone")]
        DeviceRemoved = ENODEV,
        /// Anything else that the connection manager refuses.
        #[error(transparent)] Cm(CmaError),
        /// The thread could not wait.
        #[error(transparent)] Wait(WaitError),
    }
}

impl ConnectError {
    /// Why waiting for `peer` ended, for which there was `timeout`.
    pub(super) fn of_wait(error: WaitError, peer: SocketAddr, timeout: Option<Duration>) -> Self {
        match (error, timeout) {
            (WaitError::TimedOut, Some(after)) => Self::TimedOut { peer, after },
            (error, _) => Self::Wait(error),
        }
    }
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

urxe_stack::errors! {
    /// Why there is no way to a datagram service.
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum ResolveError {
        /// As when connecting: addresses, devices, time.
        #[error(transparent)] Connect(#[from] ConnectError),
        /// `private_data`: what its program says about it, with the zeros behind that fill the
        /// message.
        #[error("{peer} offers no datagram service: {status}{}", no_service(*peer, *status))]
        Refused { peer: SocketAddr, status: SidrStatus, private_data: Vec<u8> } = ECONNREFUSED,
        /// The way there is none.
        #[error(transparent)] Ah(#[from] CreateAhError),
    }
}

fn no_service(peer: SocketAddr, status: SidrStatus) -> String {
    match status {
        SidrStatus::UNSUPPORTED => format!("; nobody listens on port {} there", peer.port()),
        _ => String::new(),
    }
}
