//! Why a connection by `rdma_cm`, or a verb over it, did not work.

use urxe::cm::{ConnectError, ListenError};
use urxe::{AllocateError, BufferError, PostError, SliceError, WaitError};

/// Why two ends do not talk.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Nothing listens.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] AllocateError),
    /// Inside one's own buffers.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// Likewise.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A request was not taken.
    #[error("the queue pair takes no request: {0}")]
    Post(#[from] PostError),
    /// Waiting failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
}
