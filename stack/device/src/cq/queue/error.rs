//! What can go wrong with a completion queue.

urxe_types::errors! {
    /// Why a call on a completion queue failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CqError {
        /// The queue was full when a completion came, and can no longer be used.
        #[error("the completion queue overran: a completion found all {capacity} entries taken")]
        Overrun { capacity: u32 } = EOVERFLOW,
        #[error("a completion queue has 1 to {max} entries, not {requested}")]
        Capacity { requested: u32, max: u32 } = EINVAL,
        /// The queue holds more completions than the capacity asked for.
        #[error("the completion queue holds {held} completions and cannot shrink to {requested} \
                 entries")]
        TooSmall { requested: u32, held: u32 } = EINVAL,
        /// `users`: send queues, receive queues and shared receive queues that report here.
        #[error("the completion queue is used by {users} work queues")]
        Busy { users: u32 } = EBUSY,
        #[error("this thread polls the completion queue one by one already: end that first")]
        Polling = EBUSY,
        #[error("the completion queue was destroyed")]
        Destroyed = EINVAL,
        #[error("no memory for {requested} completion queue entries")]
        NoMemory { requested: u32 } = ENOMEM,
    }
}
