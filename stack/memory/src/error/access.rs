//! What can go wrong with accesses: what the data path is told.

use crate::{Access, PdId};
use urxe_types::counters::Counter;
use urxe_wire::Qpn;

/// Why an access is not allowed. A responder answers each of these with a remote access error NAK
/// (IBTA C9-63).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No region has this key.
    #[error("no region has the key {key:#x}")]
    UnknownKey {
        /// What was given.
        key: u32,
    },
    /// The region or window is there, but its key is another now, or it is not valid.
    #[error("key {key:#x} is stale: the region or window has another key by now, or none")]
    StaleKey {
        /// What was given.
        key: u32,
    },
    /// A type 2 window is used through another queue pair than the one that bound it.
    #[error("key {key:#x} is of a window that another queue pair bound, {owner}")]
    WrongQp {
        /// What was given.
        key: u32,
        /// The queue pair that bound it.
        owner: Qpn,
    },
    /// A local access by a window's key, which is for peers only.
    #[error("key {key:#x} is of a window; local accesses need a region's key")]
    Window {
        /// What was given.
        key: u32,
    },
    /// The region belongs to another protection domain.
    #[error("key {key:#x} belongs to {owner:?}, not to {given:?}")]
    WrongPd {
        /// What was given.
        key: u32,
        /// The accessing queue pair's protection domain.
        given: PdId,
        /// The region's.
        owner: PdId,
    },
    /// The region does not grant this access.
    #[error("key {key:#x} grants {granted:?}, not {need:?}")]
    Denied {
        /// What was given.
        key: u32,
        /// What the access needs.
        need: Access,
        /// What the region grants.
        granted: Access,
    },
    /// The access is not wholly inside the region.
    #[error(
        "{len} bytes at {addr:#x} are not inside the {region_len} bytes at {start:#x} of key {key:#x}"
    )]
    OutOfBounds {
        /// What was given.
        key: u32,
        /// First address of the access.
        addr: u64,
        /// Its length in bytes.
        len: u64,
        /// First address of the region, as peers name it.
        start: u64,
        /// The region's length in bytes.
        region_len: u64,
    },
}

impl AccessError {
    /// The nearest `errno`, for callers that have no better word.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::UnknownKey { .. } | Self::StaleKey { .. } | Self::OutOfBounds { .. } => {
                libc::EINVAL
            }
            Self::WrongPd { .. }
            | Self::WrongQp { .. }
            | Self::Window { .. }
            | Self::Denied { .. } => libc::EACCES,
        }
    }
}

/// Why a copy or an atomic operation under a pin did not happen, or happened in part only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The access is not wholly inside the pinned region.
    #[error("{len} bytes at {addr:#x} are not inside the pinned region")]
    OutOfBounds {
        /// First address of the access, as peers name it.
        addr: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// The region is not writable.
    #[error("the pinned region is not writable")]
    ReadOnly,
    /// An atomic operation on an address that is not a multiple of 8, as peers name it or in this
    /// process.
    #[error("atomic operation at {addr:#x}, which is not aligned to 8 bytes")]
    Misaligned {
        /// The address, as peers name it.
        addr: u64,
    },
    /// A page is not mapped, or not with the protection needed. Seen in checked copies only; some
    /// bytes may have been copied.
    #[error("{len} bytes at {addr:#x} are not all mapped")]
    NotMapped {
        /// First address of the access, as peers name it.
        addr: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// What was written cannot be made to last: its memory is no shared mapping of a file on a disk
    /// (any more), or the system failed to write it.
    #[error("the bytes cannot be made to survive a power failure: error {errno}")]
    NotFlushed {
        /// The system's `errno`, or EINVAL.
        errno: i32,
    },
    /// The system refuses every call that checked copies could use (a seccomp filter, no file
    /// descriptors left).
    #[error("no system call for checked copies is usable: error {errno}")]
    Refused {
        /// The last call's `errno`.
        errno: i32,
    },
}

impl Fault {
    /// The nearest `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::OutOfBounds { .. } | Self::Misaligned { .. } => libc::EINVAL,
            Self::ReadOnly => libc::EACCES,
            Self::NotMapped { .. } => libc::EFAULT,
            Self::Refused { errno } | Self::NotFlushed { errno } => errno,
        }
    }
}

impl From<&AccessError> for Counter {
    /// The counter of a peer's access that was refused.
    fn from(error: &AccessError) -> Self {
        match error {
            AccessError::UnknownKey { .. } => Self::AccessUnknownKey,
            AccessError::StaleKey { .. } => Self::AccessStaleKey,
            AccessError::WrongPd { .. } => Self::AccessWrongPd,
            AccessError::WrongQp { .. } => Self::AccessWrongQp,
            AccessError::Denied { .. } | AccessError::Window { .. } => Self::AccessDenied,
            AccessError::OutOfBounds { .. } => Self::AccessOutOfBounds,
        }
    }
}

impl From<&Fault> for Counter {
    /// The counter of a peer's access that was allowed and failed.
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::NotMapped { .. } | Fault::Refused { .. } => Self::AccessNotMapped,
            Fault::NotFlushed { .. } => Self::FlushFailed,
            // A pin allows no more than was checked; an atomic's alignment is checked by both
            // addresses.
            Fault::ReadOnly => Self::AccessDenied,
            Fault::OutOfBounds { .. } | Fault::Misaligned { .. } => Self::AccessOutOfBounds,
        }
    }
}
