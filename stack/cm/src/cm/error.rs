//! Why a call of the connection manager fails.

use urxe_wire::mad::{CommId, ServiceId};

use super::table::{CmState, Input};

urxe_types::errors! {
    /// Why a call of the connection manager fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CmError {
        #[error("there is no communication {0}")]
        UnknownId(CommId) = EINVAL,
        #[error("there is no such listener")]
        UnknownListener = EINVAL,
        #[error("communication {id} is in {state}, where {call:?} has no place")]
        State { id: CommId, state: CmState, call: Input } = EINVAL,
        #[error("something listens for {0} already")]
        InUse(ServiceId) = EADDRINUSE,
        #[error("{max} communications exist, more are not allowed")]
        TooMany { max: usize } = ENOMEM,
    }
}
