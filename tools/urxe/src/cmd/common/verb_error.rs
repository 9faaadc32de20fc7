//! Why a verb did not work, whichever.

use urxe::{
    AllocPdError, AllocateError, BatchError, BufferError, CqError, CreateAhError, CreateCqError,
    CreateQpError, CreateSrqError, LinkError, ModifyError, OpenError, PostError, SliceError,
    WaitError,
};

/// Why an end does not work.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// The device.
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
    #[error("cannot connect")]
    Connect(#[from] ModifyError),
    /// The way of datagrams.
    #[error("cannot send to the peer")]
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
}
