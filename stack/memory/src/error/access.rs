//! What can go wrong with accesses: what the data path is told.

use crate::{Access, PdId};
use urxe_types::counters::Counter;
use urxe_wire::Qpn;

urxe_types::errors! {
    /// Why an access is not allowed. A responder answers each of these with a remote access error
    /// NAK (IBTA C9-63).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AccessError {
        #[error("no region has the key {key:#x}")]
        UnknownKey { key: u32 } = EINVAL,
        /// The region or window is there, but its key is another now, or it is not valid.
        #[error("key {key:#x} is stale: the region or window has another key by now, or none")]
        StaleKey { key: u32 } = EINVAL,
        /// A type 2 window is used through another queue pair than the one that bound it.
        #[error("key {key:#x} is of a window that another queue pair bound, {owner}")]
        WrongQp { key: u32, owner: Qpn } = EACCES,
        /// A local access by a window's key, which is for peers only.
        #[error("key {key:#x} is of a window; local accesses need a region's key")]
        Window { key: u32 } = EACCES,
        #[error("key {key:#x} belongs to {owner:?}, not to {given:?}")]
        WrongPd { key: u32, given: PdId, owner: PdId } = EACCES,
        #[error("key {key:#x} grants {granted:?}, not {need:?}")]
        Denied { key: u32, need: Access, granted: Access } = EACCES,
        /// `start`: first address of the region, as peers name it.
        #[error("{len} bytes at {addr:#x} are not inside the {region_len} bytes at {start:#x} of \
                 key {key:#x}")]
        OutOfBounds { key: u32, addr: u64, len: u64, start: u64, region_len: u64 } = EINVAL,
    }

    /// Why a copy or an atomic operation under a pin did not happen, or happened in part only.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum Fault {
        /// `addr`: first address of the access, as peers name it.
        #[error("{len} bytes at {addr:#x} are not inside the pinned region")]
        OutOfBounds { addr: u64, len: u64 } = EINVAL,
        #[error("the pinned region is not writable")]
        ReadOnly = EACCES,
        /// An atomic operation on an address that is not a multiple of 8, as peers name it or in
        /// this process.
        ///
        /// `addr`: the address, as peers name it.
        #[error("atomic operation at {addr:#x}, which is not aligned to 8 bytes")]
        Misaligned { addr: u64 } = EINVAL,
        /// A page is not mapped, or not with the protection needed. Seen in checked copies only;
        /// some bytes may have been copied.
        ///
        /// `addr`: first address of the access, as peers name it.
        #[error("{len} bytes at {addr:#x} are not all mapped")]
        NotMapped { addr: u64, len: u64 } = EFAULT,
        /// What was written cannot be made to last: its memory is no shared mapping of a file on a
        /// disk (any more), or the system failed to write it.
        ///
        /// `errno`: the system's `errno`, or EINVAL.
        #[error("the bytes cannot be made to survive a power failure: error {errno}")]
        NotFlushed { errno: i32 } = *errno,
        /// The system refuses every call that checked copies could use (a seccomp filter, no file
        /// descriptors left).
        ///
        /// `errno`: the last call's `errno`.
        #[error("no system call for checked copies is usable: error {errno}")]
        Refused { errno: i32 } = *errno,
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
