//! What can go wrong with a completion queue.

/// Why a call on a completion queue failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// The queue was full when a completion came, and can no longer be used.
    #[error("the completion queue overran: a completion found all {capacity} entries taken")]
    Overrun {
        /// Entries of the queue.
        capacity: u32,
    },
    /// The number of entries asked for is not possible.
    #[error("a completion queue has 1 to {max} entries, not {requested}")]
    Capacity {
        /// What was asked for.
        requested: u32,
        /// What the device allows.
        max: u32,
    },
    /// The queue holds more completions than the capacity asked for.
    #[error(
        "the completion queue holds {held} completions and cannot shrink to {requested} entries"
    )]
    TooSmall {
        /// What was asked for.
        requested: u32,
        /// Completions that nobody polled yet.
        held: u32,
    },
    /// Queue pairs still use the queue.
    #[error("the completion queue is used by {users} work queues")]
    Busy {
        /// Send queues, receive queues and shared receive queues that report here.
        users: u32,
    },
    /// This thread is going through the queue already.
    #[error("this thread polls the completion queue one by one already: end that first")]
    Polling,
    /// The queue was destroyed.
    #[error("the completion queue was destroyed")]
    Destroyed,
    /// There is no memory for that many entries.
    #[error("no memory for {requested} completion queue entries")]
    NoMemory {
        /// What was asked for.
        requested: u32,
    },
}

impl CqError {
    /// The number that libibverbs' calls return for this.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Overrun { .. } => libc::EOVERFLOW,
            Self::Capacity { .. } | Self::TooSmall { .. } | Self::Destroyed => libc::EINVAL,
            Self::Busy { .. } | Self::Polling => libc::EBUSY,
            Self::NoMemory { .. } => libc::ENOMEM,
        }
    }
}
