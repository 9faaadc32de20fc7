//! Why a call of the connection manager fails.

use urxe_wire::mad::{CommId, ServiceId};

use super::table::{CmState, Input};

/// Why a call of the connection manager fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// There is no such communication, or none any more.
    #[error("there is no communication {0}")]
    UnknownId(CommId),
    /// There is no such listener.
    #[error("there is no such listener")]
    UnknownListener,
    /// The call has no place in the communication's state.
    #[error("communication {id} is in {state}, where {call:?} has no place")]
    State {
        /// The communication.
        id: CommId,
        /// Its state.
        state: CmState,
        /// The call.
        call: Input,
    },
    /// Somebody listens for this already.
    #[error("something listens for {0} already")]
    InUse(ServiceId),
    /// As many communications as there may be.
    #[error("{max} communications exist, more are not allowed")]
    TooMany {
        /// The limit.
        max: usize,
    },
}

impl CmError {
    /// What librdmacm's functions set `errno` to.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::UnknownId(_) | Self::UnknownListener | Self::State { .. } => libc::EINVAL,
            Self::InUse(_) => libc::EADDRINUSE,
            Self::TooMany { .. } => libc::ENOMEM,
        }
    }
}
