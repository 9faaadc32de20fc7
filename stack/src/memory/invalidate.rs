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
    #[error("the key {rkey} is of another protection domain")]
    WrongPd {
        /// The key.
        rkey: Rkey,
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

impl Memory {
    /// Invalidates `rkey` for a queue pair of `pd`.
    ///
    /// # Errors
    /// [`InvalidateError`].
    pub fn invalidate(&self, rkey: Rkey, pd: PdId) -> Result<(), InvalidateError> {
        match self.query(Lkey(rkey.0)) {
            None => Err(InvalidateError::UnknownKey { rkey }),
            Some(mr) if mr.pd != pd => Err(InvalidateError::WrongPd { rkey }),
            Some(_) => Err(InvalidateError::OrdinaryRegion { rkey }),
        }
    }
}
