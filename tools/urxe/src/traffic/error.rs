//! Errors that ping-pong, performance measurement and messages share.

use std::error::Error;

use urxe::cm::{ConnectError, ListenError};
use urxe::{
    AllocPdError, AllocateError, BatchError, BufferError, CqError, CreateAhError, CreateCqError,
    CreateQpError, CreateSrqError, LinkError, ModifyError, OpenEngineError, OpenError, PathMtu,
    PostError, SliceError, WaitError, WcStatus,
};
use urxe_stack::escape::Escaped;

use super::peer::ProcessError;
use super::selection::{CHOOSE, SelectionError};
use super::variables::VariableError;
use crate::output;

/// Errors of a transfer between two ends.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A device that cannot be opened.
    #[error("device {device}: {}{}", output::describe(error), remedy(error))]
    Device { device: String, error: OpenError },
    /// The options select no device.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// No device has the address of a listener, or the route to a peer.
    /// The text names the devices, which are open only until the command ends.
    #[error("{reason}; {CHOOSE}")]
    NoDevice { reason: String },
    /// An environment variable with a wrong value.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// Another call.
    #[error(transparent)]
    Call(Box<dyn Error + Send + Sync>),
    /// The queue pair cannot be connected.
    #[error("cannot connect the queue pair")]
    Connect(#[from] ModifyError),
    /// The address handle cannot be created.
    #[error("cannot create an address handle for the peer")]
    Address(#[from] CreateAhError),
    /// The peer process failed, or the connection to the peer.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A request failed.
    #[error("{what} failed with status {} ({status})", status.number())]
    Status { what: &'static str, status: WcStatus },
    /// The path MTU does not fit.
    #[error("path MTU {given} does not fit this link; choose --mtu {allowed} or less")]
    MtuTooLarge { given: PathMtu, allowed: usize },
    /// A device has no address to send from.
    #[error("device {device} has no address to send from; add one to its interface")]
    NoAddress { device: String },
    /// The peer process has no address to use.
    #[error(
        "this machine has no second address of this family for the peer process; choose an IPv4 \
         device by -d or --link NAME=ADDRESS"
    )]
    NoPeerAddress,
    /// The peer's text violates the protocol.
    #[error("the other end violates the protocol: {}", Escaped(.0))]
    Protocol(String),
}

macro_rules! calls {
    ($($error:ty),*) => {
        $(impl From<$error> for TrafficError {
            fn from(error: $error) -> Self {
                Self::Call(Box::new(error))
            }
        })*
    };
}

calls!(OpenError, LinkError, AllocPdError, AllocateError, CreateCqError, CreateSrqError);
calls!(CreateQpError, SliceError, BufferError, PostError);
calls!(BatchError, CqError, WaitError);

impl From<ConnectError> for TrafficError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoDevice { .. } => Self::NoDevice { reason: error.to_string() },
            _ => Self::Call(Box::new(error)),
        }
    }
}

impl From<ListenError> for TrafficError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::NoDevice { .. } => Self::NoDevice { reason: error.to_string() },
            _ => Self::Call(Box::new(error)),
        }
    }
}

/// Returns how to choose a device that can be opened, if the choice is the reason of the error.
fn remedy(error: &OpenError) -> String {
    match error {
        OpenError::Name(_)
        | OpenError::Link(_)
        | OpenError::Engine(OpenEngineError::Link(_) | OpenEngineError::Port(_)) => {
            format!("; {CHOOSE}")
        }
        _ => String::new(),
    }
}

/// Returns the error for a command or reply that violates the protocol.
pub fn unexpected(what: impl Into<String>) -> TrafficError {
    TrafficError::Protocol(what.into())
}
