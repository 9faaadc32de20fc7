//! What can go wrong with memory windows.

use super::RegMrError;
use crate::{Access, PdId};
use urxe_wire::{Lkey, Rkey};

urxe_types::errors! {
    /// Why a window was not allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AllocMwError {
        #[error("{max} memory windows are allocated, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
    }

    /// Why a window was not deallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeallocMwError {
        #[error("no memory window has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
    }

    /// Why a window was not bound. The work request completes with
    /// [`MwBindErr`](urxe_types::completion::WcStatus::MwBindErr).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum BindError {
        /// No window has this key (any more).
        #[error("no memory window has the key {key}")]
        UnknownWindow { key: Rkey } = EINVAL,
        /// No region has this key, or it is not valid.
        #[error("no valid region has the key {lkey}")]
        UnknownRegion { lkey: Lkey } = EINVAL,
        #[error("access flags {given:?}: a window cannot grant {unknown:?}")]
        Access { given: Access, unknown: Access } = EOPNOTSUPP,
        /// The window belongs to another protection domain (C10-72).
        #[error("the window {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
        WindowPd { key: Rkey, given: PdId, owner: PdId } = EPERM,
        #[error("the region {lkey} belongs to {owner:?}, not to the queue pair's {given:?}")]
        RegionPd { lkey: Lkey, given: PdId, owner: PdId } = EPERM,
        /// A type 1 window's addresses are the region's (o10-36.2.2).
        #[error("a type 1 window cannot be zero-based")]
        ZeroBasedType1 = EINVAL,
        /// A type 2 window is bound already (o10-37.2.30).
        #[error("the type 2 window {key} is bound already: invalidate it first")]
        NotFree { key: Rkey } = EBUSY,
        /// Binding no bytes unbinds type 1 windows only (o10-37.2.40).
        #[error("a type 2 window cannot be bound to no bytes: invalidate it")]
        EmptyType2 = EINVAL,
        /// A type 2 window belongs to the queue pair that binds it.
        #[error("a type 2 window can be bound by a queue pair only")]
        NoQp = EINVAL,
        /// The region does not let windows be bound (C10-73).
        #[error("the region grants {granted:?}, without MW_BIND")]
        NeedsMwBind { granted: Access } = EINVAL,
        /// The region is zero-based; `rdma_rxe` refuses that as well.
        #[error("windows cannot be bound to the zero-based region {lkey}")]
        ZeroBasedRegion { lkey: Lkey } = EINVAL,
        /// The window lets peers write where the owner may not (C10-74).
        #[error("a window with {given:?} needs a region with LOCAL_WRITE; this one grants \
                 {granted:?}")]
        NeedsLocalWrite { given: Access, granted: Access } = EINVAL,
        /// A right that this part of the region's memory cannot have.
        #[error(transparent)] Memory(#[from] RegMrError) = EINVAL,
        /// The window is not wholly inside the region (C10-75).
        #[error("{length} bytes at {addr:#x} are not inside the region's {region_len} bytes at \
                 {start:#x}")]
        OutOfBounds { addr: u64, length: u64, start: u64, region_len: u64 } = EINVAL,
    }
}
