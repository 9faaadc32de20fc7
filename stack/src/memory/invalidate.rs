//! Taking away a key by a work request or by the peer (IBTA vol. 1, 10.6.5, 10.6.7.1).
//!
//! Only windows and fast-registration regions can lose their key this way. An ordinary region keeps it until it is
//! deregistered, as with the kernel's `rdma_rxe` (`rxe_mr.c`, `rxe_invalidate_mr`).

use urxe_wire::{Lkey, Rkey};

use super::{Memory, PdId};

/// Why a key was not invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidateError {
    /// There is none.
    #[error("no region or window has the key {rkey}")]
    UnknownKey {
        /// The key.
        rkey: Rkey,
    },
    /// It is of another protection domain.
    #[error("the key {rkey} is of {owner:?}, not of {given:?}")]
    WrongPd {
        /// The key.
        rkey: Rkey,
        /// The queue pair's protection domain.
        given: PdId,
        /// The region's.
        owner: PdId,
    },
    /// It is an ordinary region's.
    #[error(
        "the key {rkey} is of an ordinary region; only windows and fast-registration regions can be invalidated"
    )]
    OrdinaryRegion {
        /// The key.
        rkey: Rkey,
    },
}

impl InvalidateError {
    /// The nearest `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::UnknownKey { .. } | Self::OrdinaryRegion { .. } => libc::EINVAL,
            Self::WrongPd { .. } => libc::EACCES,
        }
    }
}

impl Memory {
    /// Invalidates `rkey` for a queue pair of `pd`.
    ///
    /// # Errors
    /// [`InvalidateError`].
    pub fn invalidate(&self, rkey: Rkey, pd: PdId) -> Result<(), InvalidateError> {
        match self.query(Lkey(rkey.0)) {
            None => Err(InvalidateError::UnknownKey { rkey }),
            Some(mr) if mr.pd != pd => Err(InvalidateError::WrongPd { rkey, given: pd, owner: mr.pd }),
            Some(_) => Err(InvalidateError::OrdinaryRegion { rkey }),
        }
    }
}
