//! Errors of connecting and listening.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use urxe_stack::cma::CmaError;
use urxe_stack::device::{CreateCqError, CreateQpError, ModifyError};
use urxe_stack::errno::OsError;
use urxe_stack::port::udp::PathError;
use urxe_stack::qp::work_request::PostError;
use urxe_wire::mad::{RejReason, SidrStatus};

use super::default_devices;
use crate::CreateAhError;
use crate::cq::WaitError;
use crate::device::OpenError;
use crate::memory::AllocateError;
use crate::pd::AllocPdError;

urxe_stack::errors! {
    /// The reason why no device can connect or listen.
    #[derive(Debug, thiserror::Error)]
    pub enum NoServiceError {
        /// The list of devices cannot be read, or none of the devices can be opened.
        #[error(transparent)] Open(#[from] OpenError),
        #[error("no device is configured: run `urxe link add rxe0 INTERFACE`, or select a device \
                 with `device`")]
        NothingConfigured = ENODEV,
    }

    /// The reason why a listener was not created.
    #[derive(Debug, thiserror::Error)]
    pub enum ListenError {
        /// The text is no address, or the system cannot resolve the name.
        #[error("the address to listen on: {0}")]
        Address(#[source] io::Error) => |error| error.raw_os_error().unwrap_or(EINVAL),
        /// No device can listen.
        #[error(transparent)] Service(#[from] NoServiceError),
        #[error("port {} is in use: {reason}; choose another, or 0 for any", addr.port())]
        InUse { addr: SocketAddr, reason: CmaError } = EADDRINUSE,
        /// The address does not belong to this host, or to none of its devices.
        #[error("{reason}{}", default_devices::hint())]
        NoDevice { addr: SocketAddr, reason: CmaError } = reason.errno(),
        /// The connection manager refuses for another reason.
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

urxe_stack::errors! {
    /// The reason why a connection was not established.
    #[derive(Debug, thiserror::Error)]
    pub enum ConnectError {
        /// The text is no address, or the system cannot resolve the name.
        #[error("the address to connect to: {0}")]
        Address(#[source] io::Error) => |error| error.raw_os_error().unwrap_or(EINVAL),
        /// No device can connect.
        #[error(transparent)] Service(#[from] NoServiceError),
        #[error("no route to {}: {errno}", peer.ip())]
        NoRoute { peer: SocketAddr, errno: OsError } = errno.raw_os_error(),
        /// The route exists, but its interface belongs to no device.
        #[error("the route to {} starts at no RDMA device{}", peer.ip(), default_devices::hint())]
        NoDevice { peer: SocketAddr } = ENODEV,
        /// A number of [`Options`](super::Options) does not fit its field of the message.
        #[error("{option} is {given}, at most {max} is allowed")]
        Option { option: &'static str, given: u32, max: u32 } = EINVAL,
        /// `object`: the protection domain, queue or queue pair that the program selected. The
        /// route to the peer starts at another device.
        #[error("the {object} and the route to {peer} belong to different devices")]
        OtherDevice { object: &'static str, peer: IpAddr } = EINVAL,
        /// The protection domain cannot be allocated.
        #[error(transparent)] Pd(#[from] AllocPdError),
        /// The completion queue cannot be created.
        #[error(transparent)] Cq(#[from] CreateCqError),
        /// The queue pair cannot be created.
        #[error(transparent)] Qp(#[from] CreateQpError),
        /// The memory for messages cannot be allocated.
        #[error(transparent)] Memory(#[from] AllocateError),
        /// A receive cannot be posted.
        #[error(transparent)] Post(#[from] PostError),
        /// The queue pair cannot change to the required state.
        #[error("the queue pair: {0}")]
        Modify(#[from] ModifyError),
        /// `reason`: the reason of the peer. [`RejReason::CONSUMER_DEFINED`] means that the program
        /// rejected the request.
        ///
        /// `peer_private_data`: the private data of the program, padded with zeros to the length of
        /// the message, for [`PrivateData::new`](super::PrivateData::new).
        #[error("{peer} refused the connection: {reason}{}", hint(*peer, *reason))]
        Rejected { peer: SocketAddr, reason: RejReason, peer_private_data: Vec<u8> } = ECONNREFUSED,
        /// All repetitions of the request stayed without an answer.
        ///
        /// `likely`: the last ICMP error of packets to the peer. Any host can forge an ICMP
        /// message, so the error explains the failure, and does not cause it.
        #[error("{peer} does not answer{}", reason(likely, ": is an RDMA device on that address, \
                 and does UDP port 4791 pass both ways?"))]
        Unreachable { peer: SocketAddr, likely: Option<PathError> } = ETIMEDOUT,
        /// The time limit of [`Options::timeout`](super::Options::timeout) has passed.
        ///
        /// `likely`: as in `Unreachable`.
        #[error("{peer} has not answered within {after:?}{}", reason(likely, ""))]
        TimedOut { peer: SocketAddr, after: Duration, likely: Option<PathError> } = ETIMEDOUT,
        /// The peer gave up before its request was accepted.
        #[error("{peer} has withdrawn its request")]
        Withdrawn { peer: SocketAddr } = ECONNABORTED,
        /// No answer can arrive any more.
        #[error("the device of the connection was removed")]
        DeviceRemoved = ENODEV,
        /// The connection manager refuses for another reason.
        #[error(transparent)] Cm(CmaError),
        /// The thread cannot wait.
        #[error(transparent)] Wait(WaitError),
    }
}

impl ConnectError {
    /// Returns the error of a failed wait for `peer` with this time limit. `likely` returns the
    /// error of the path.
    pub(super) fn of_wait(
        error: WaitError,
        peer: SocketAddr,
        timeout: Option<Duration>,
        likely: impl FnOnce() -> Option<PathError>,
    ) -> Self {
        match (error, timeout) {
            (WaitError::TimedOut, Some(after)) => Self::TimedOut { peer, after, likely: likely() },
            (error, _) => Self::Wait(error),
        }
    }
}

/// Returns the end of an error about a peer that does not answer.
fn reason(likely: &Option<PathError>, unknown: &str) -> String {
    match likely {
        Some(error) => format!("; the likely reason: {error}"),
        None => unknown.to_owned(),
    }
}

fn hint(peer: SocketAddr, reason: RejReason) -> String {
    match reason {
        RejReason::INVALID_SERVICE_ID => {
            format!("; no program listens on port {} there", peer.port())
        }
        RejReason::STALE_CONN => {
            "; the peer still has a former connection of this queue pair: try again".into()
        }
        _ => String::new(),
    }
}

urxe_stack::errors! {
    /// The reason why a datagram service was not resolved.
    #[derive(Debug, thiserror::Error)]
    pub enum ResolveError {
        /// The same reasons as for a connection: addresses, devices, time limits.
        #[error(transparent)] Connect(#[from] ConnectError),
        /// `peer_private_data`: the private data of the program, padded with zeros to the length of
        /// the message, for [`PrivateData::new`](super::PrivateData::new).
        #[error("{peer} offers no datagram service: {status}{}", no_service(*peer, *status))]
        Refused { peer: SocketAddr, status: SidrStatus, peer_private_data: Vec<u8> } = ECONNREFUSED,
        /// The address handle of the service cannot be created.
        #[error(transparent)] Ah(#[from] CreateAhError),
    }
}

fn no_service(peer: SocketAddr, status: SidrStatus) -> String {
    match status {
        SidrStatus::UNSUPPORTED => format!("; no program listens on port {} there", peer.port()),
        _ => String::new(),
    }
}
