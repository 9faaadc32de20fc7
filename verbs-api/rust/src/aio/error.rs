//! The errors of awaitable queue pairs.

#[cfg(feature = "cm")]
use std::net::SocketAddr;

use urxe_stack::allocate::OutOfMemory;
use urxe_stack::cq::{CqError, WcError};
use urxe_stack::device::{CreateCqError, CreateQpError, ModifyError};
use urxe_stack::qp::work_request::PostError;

#[cfg(feature = "cm")]
use crate::cm::ConnectError;
use crate::memory::AllocateError;
#[cfg(feature = "sim")]
use crate::sim::Stalled;

urxe_stack::errors! {
    /// The reason why an awaitable operation failed.
    ///
    /// ```
    /// use urxe::aio::{AsyncQueuePair, OperationError};
    /// use urxe::{PostError, QpState, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// let qp = AsyncQueuePair::builder().create(&pd)?;
    /// // The queue pair is not connected.
    /// let error = pollster::block_on(qp.send(b"hello")).unwrap_err();
    /// assert_eq!(error, OperationError::Post(PostError::State { state: QpState::Reset }));
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum OperationError {
        /// The request failed, or the queue pair is in the error state. The message omits `wr_id`,
        /// which the program did not choose.
        #[error("{0:#}")] Failed(WcError) = EIO,
        /// The request was flushed. Requests that failed before have the reason, if there is one.
        /// The peer may have executed a flushed request.
        #[cfg(feature = "cm")]
        #[error("the connection to {peer} has ended: one end disconnected, or the program of \
                 {peer} died; connect again")]
        Disconnected { peer: SocketAddr } = libc::ECONNRESET,
        /// `given`: the number of bytes. `allowed`: `max_inline_data` of the queue pair.
        #[error("{given} bytes without a region, but the queue pair copies at most {allowed}: \
                 pass a slice by `ProtectionDomain::share_bytes` or `MemoryRegion::share`, or set \
                 `AsyncQueuePairBuilder::max_inline_data`")]
        TooManyBytes { given: usize, allowed: u32 } = EINVAL,
        /// The queue pair does not accept the request.
        #[error(transparent)] Post(PostError),
        /// The completion queue cannot be used any more.
        #[error(transparent)] Cq(#[from] CqError),
        #[error("the queue pair was created without receives: \
                 set their number in `AsyncQueuePairBuilder::receives`")]
        NoReceives = EINVAL,
        /// The batch has posted none of its operations.
        #[error("an operation of a batch belongs to another queue pair, or was polled before: \
                 make all operations of a batch with its own queue pair, and do not poll them")]
        NotOfBatch = EINVAL,
        /// Virtual time does not advance.
        #[cfg(feature = "sim")]
        #[error(transparent)] Stalled(#[from] Stalled) = EDEADLK,
    }

    /// The reason why an awaitable queue pair was not created or not connected.
    ///
    /// ```
    /// use urxe::aio::{AsyncQueuePair, SetupError};
    /// use urxe::sim::Fabric;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// let error = AsyncQueuePair::builder().max_send_wr(1 << 30).create(&pd).unwrap_err();
    /// assert!(matches!(error, SetupError::Cq(_)));
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Debug, thiserror::Error)]
    pub enum SetupError {
        /// The completion queue was not created.
        #[error(transparent)] Cq(#[from] CreateCqError),
        /// The queue pair was not created.
        #[error(transparent)] Qp(#[from] CreateQpError),
        /// The memory of receives or of atomic operations was not registered.
        #[error(transparent)] Region(#[from] AllocateError),
        /// No memory is available.
        #[error(transparent)] Memory(#[from] OutOfMemory) = ENOMEM,
        /// The state of the queue pair did not change.
        #[error(transparent)] Modify(#[from] ModifyError),
        /// A receive was not posted.
        #[error(transparent)] Post(#[from] PostError),
        /// The connection was not established.
        #[cfg(feature = "cm")]
        #[error(transparent)] Connect(#[from] ConnectError),
        /// `object`: the option.
        #[cfg(feature = "cm")]
        #[error("the options name a {object}, but an awaitable queue pair has queues of its own: \
                 remove it from the options")]
        OtherQueue { object: &'static str } = EINVAL,
    }
}

impl From<WcError> for OperationError {
    fn from(error: WcError) -> Self {
        Self::Failed(error)
    }
}

impl From<PostError> for OperationError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::TooMuchInline { given, allowed } => Self::TooManyBytes { given, allowed },
            error => Self::Post(error),
        }
    }
}
