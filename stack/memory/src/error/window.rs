//! What can go wrong with memory windows.

use super::RegMrError;
use crate::{Access, PdId};
use urxe_wire::{Lkey, Rkey};

/// Why a window was not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocMwError {
    /// The device holds as many windows as it may.
    #[error("{max} memory windows are allocated, and no more are allowed")]
    TooMany {
        /// The device's limit.
        max: u32,
    },
}

impl AllocMwError {
    /// What `ibv_alloc_mw` leaves in `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::ENOMEM
    }
}

/// Why a window was not deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeallocMwError {
    /// There is none.
    #[error("no memory window has the key {key}")]
    UnknownKey {
        /// What was given.
        key: Rkey,
    },
}

impl DeallocMwError {
    /// What `ibv_dealloc_mw` returns.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::EINVAL
    }
}

/// Why a window was not bound. The work request completes with
/// [`MwBindErr`](urxe_types::completion::WcStatus::MwBindErr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// No window has this key (any more).
    #[error("no memory window has the key {key}")]
    UnknownWindow {
        /// What was given.
        key: Rkey,
    },
    /// No region has this key, or it is not valid.
    #[error("no valid region has the key {lkey}")]
    UnknownRegion {
        /// What was given.
        lkey: Lkey,
    },
    /// Flags that a window cannot grant.
    #[error("access flags {given:?}: a window cannot grant {unknown:?}")]
    Access {
        /// What was given.
        given: Access,
        /// The part of it that it cannot.
        unknown: Access,
    },
    /// The window belongs to another protection domain (C10-72).
    #[error("the window {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
    WindowPd {
        /// The window's key.
        key: Rkey,
        /// The queue pair's protection domain.
        given: PdId,
        /// The window's.
        owner: PdId,
    },
    /// The region belongs to another protection domain.
    #[error("the region {lkey} belongs to {owner:?}, not to the queue pair's {given:?}")]
    RegionPd {
        /// The region's key.
        lkey: Lkey,
        /// The queue pair's protection domain.
        given: PdId,
        /// The region's.
        owner: PdId,
    },
    /// A type 1 window's addresses are the region's (o10-36.2.2).
    #[error("a type 1 window cannot be zero-based")]
    ZeroBasedType1,
    /// A type 2 window is bound already (o10-37.2.30).
    #[error("the type 2 window {key} is bound already: invalidate it first")]
    NotFree {
        /// Its key.
        key: Rkey,
    },
    /// Binding no bytes unbinds type 1 windows only (o10-37.2.40).
    #[error("a type 2 window cannot be bound to no bytes: invalidate it")]
    EmptyType2,
    /// A type 2 window belongs to the queue pair that binds it.
    #[error("a type 2 window can be bound by a queue pair only")]
    NoQp,
    /// The region does not let windows be bound (C10-73).
    #[error("the region grants {granted:?}, without MW_BIND")]
    NeedsMwBind {
        /// What the region grants.
        granted: Access,
    },
    /// The region is zero-based; `rdma_rxe` refuses that as well.
    #[error("windows cannot be bound to the zero-based region {lkey}")]
    ZeroBasedRegion {
        /// The region's key.
        lkey: Lkey,
    },
    /// The window lets peers write where the owner may not (C10-74).
    #[error("a window with {given:?} needs a region with LOCAL_WRITE; this one grants {granted:?}")]
    NeedsLocalWrite {
        /// What was asked for.
        given: Access,
        /// What the region grants.
        granted: Access,
    },
    /// A right that this part of the region's memory cannot have.
    #[error(transparent)]
    Memory(#[from] RegMrError),
    /// The window is not wholly inside the region (C10-75).
    #[error(
        "{length} bytes at {addr:#x} are not inside the region's {region_len} bytes at {start:#x}"
    )]
    OutOfBounds {
        /// First address of the window.
        addr: u64,
        /// Its length in bytes.
        length: u64,
        /// First address of the region.
        start: u64,
        /// The region's length in bytes.
        region_len: u64,
    },
}

impl BindError {
    /// The nearest `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Access { .. } => libc::EOPNOTSUPP,
            Self::WindowPd { .. } | Self::RegionPd { .. } => libc::EPERM,
            Self::NotFree { .. } => libc::EBUSY,
            _ => libc::EINVAL,
        }
    }
}
