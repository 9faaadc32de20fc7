//! Errors that ping-pong, performance measurement and messages share.

use urxe::cm::{ConnectError, ListenError};
use urxe::{
    AllocPdError, AllocateError, BatchError, BufferError, CqError, CreateAhError, CreateCqError,
    CreateQpError, CreateSrqError, LinkError, ModifyError, OpenError, PathMtu, PostError,
    SliceError, WaitError,
};

use super::peer::ProcessError;

/// Errors of a transfer between two ends.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The device.
    #[error("device {device}: {error}")]
    Device {
        device: String,
        #[source]
        error: OpenError,
    },
    /// A device of the peer process.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The list of devices or the machine's addresses.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The protection domain.
    #[error(transparent)]
    Pd(#[from] AllocPdError),
    /// The region.
    #[error(transparent)]
    Region(#[from] AllocateError),
    /// The completion queue.
    #[error(transparent)]
    CreateCq(#[from] CreateCqError),
    /// The shared receive queue.
    #[error(transparent)]
    CreateSrq(#[from] CreateSrqError),
    /// The queue pair.
    #[error(transparent)]
    CreateQp(#[from] CreateQpError),
    /// The connection.
    #[error("cannot connect the queue pair")]
    Connect(#[from] ModifyError),
    /// A connection by `rdma_cm`.
    #[error(transparent)]
    CmConnect(#[from] ConnectError),
    /// Listening by `rdma_cm`.
    #[error(transparent)]
    CmListen(#[from] ListenError),
    /// The address handle of the peer.
    #[error("cannot create an address handle for the peer")]
    Address(#[from] CreateAhError),
    /// A part of the region.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// An access to the region.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A work request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// One of several work requests.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Polling.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// Waiting.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The peer process failed, or the connection to the peer.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The path MTU does not fit.
    #[error("path MTU {given} does not fit this link; choose --mtu {allowed} or less")]
    MtuTooLarge { given: PathMtu, allowed: usize },
    /// A device has no address to send from.
    #[error("device {device} has no address to send from; add one to its interface")]
    NoAddress { device: String },
    /// The peer process has no address to use.
    #[error(
        "this machine has no second address of this family for the peer process; choose an IPv4 \
         --device"
    )]
    NoPeerAddress,
    /// The peer's text violates the protocol.
    #[error("the other end violates the protocol: {0}")]
    Protocol(String),
}

/// Returns the error for a command or reply that violates the protocol.
pub fn unexpected(what: impl Into<String>) -> TrafficError {
    TrafficError::Protocol(what.into())
}
