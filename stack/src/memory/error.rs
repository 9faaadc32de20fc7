//! What can go wrong with registered memory, one variant a reason.
//!
//! Registration and deregistration answer a program, so those errors carry an `errno`. [`AccessError`] and [`Fault`]
//! answer the data path: for a peer's packet they become a NAK or a drop, for a local work request a
//! completion status, and for a caller of the safe API an error.

use super::{Access, PdId};
use urxe_wire::Lkey;

/// Why a region was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegMrError {
    /// The length is 0. The kernel refuses it as well (`ib_umem_get`: no pages).
    #[error("length 0: a region has at least one byte")]
    ZeroLength,
    /// The range is not inside the buffer.
    #[error("bytes {start} to {end} of a buffer of {len}")]
    OutsideBuffer {
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
        /// The buffer's length in bytes.
        len: usize,
    },
    /// The address range leaves the address space.
    #[error("{len} bytes at {addr:#x} leave the address space")]
    Wraps {
        /// Start of the range in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// The range that peers would use leaves the 64-bit address space.
    #[error("{len} bytes at I/O virtual address {iova:#x} exceed 64 bits")]
    IovaWraps {
        /// First address as peers name it.
        iova: u64,
        /// Length in bytes.
        len: usize,
    },
    /// The I/O virtual address has another offset within its page than the address in this process.
    #[error(
        "I/O virtual address {iova:#x} and address {addr:#x} differ in their offset within a page of {page} bytes"
    )]
    IovaOffset {
        /// Start of the range in this process.
        addr: usize,
        /// First address as peers name it.
        iova: u64,
        /// The page size.
        page: usize,
    },
    /// Flags outside the known ones and outside the range of optional ones (bits 20 to 29).
    #[error("access flags {given:#x}: {unknown:#x} unknown, {:#x} known", Access::all().bits())]
    UnknownAccess {
        /// What was given.
        given: u32,
        /// The part of it that means nothing.
        unknown: u32,
    },
    /// A peer may write only where the owner may (IBTA o10-38, `ib_check_mr_access`).
    #[error("{given:?} lacks LOCAL_WRITE, which REMOTE_WRITE and REMOTE_ATOMIC require")]
    NeedsLocalWrite {
        /// What was given.
        given: Access,
    },
    /// Part of the range is not mapped.
    #[error("{len} bytes at {addr:#x} are not all mapped")]
    NotMapped {
        /// Start of the range in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// Part of the range is mapped without the protection that the access flags need, or lies behind the end of its file.
    #[error("{len} bytes at {addr:#x} are not all {}", if *.write { "writable, which LOCAL_WRITE needs" } else { "readable" })]
    NotAccessible {
        /// Start of the range in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
        /// Whether the region asked to be written.
        write: bool,
    },
    /// The device holds as many regions as it may.
    #[error("{max} memory regions are registered, and no more are allowed")]
    TooMany {
        /// The device's limit.
        max: u32,
    },
}

impl RegMrError {
    /// What `ibv_reg_mr` leaves in `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::ZeroLength
            | Self::OutsideBuffer { .. }
            | Self::Wraps { .. }
            | Self::IovaWraps { .. }
            | Self::IovaOffset { .. }
            | Self::UnknownAccess { .. }
            | Self::NeedsLocalWrite { .. } => libc::EINVAL,
            Self::NotMapped { .. } | Self::NotAccessible { .. } => libc::EFAULT,
            Self::TooMany { .. } => libc::ENOMEM,
        }
    }
}

/// Why a region was not deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeregMrError {
    /// No region has this key: it never had one, or it was deregistered already.
    #[error("no region has the key {lkey}")]
    UnknownKey {
        /// What was given.
        lkey: Lkey,
    },
}

impl DeregMrError {
    /// What `ibv_dereg_mr` returns.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::UnknownKey { .. } => libc::EINVAL,
        }
    }
}

/// Why an access is not allowed. A responder answers each of these with a remote access error NAK (IBTA C9-63).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No region has this key.
    #[error("no region has the key {key:#x}")]
    UnknownKey {
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
    #[error("{len} bytes at {addr:#x} are not inside the {region_len} bytes at {start:#x} of key {key:#x}")]
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
            Self::UnknownKey { .. } | Self::OutOfBounds { .. } => libc::EINVAL,
            Self::WrongPd { .. } | Self::Denied { .. } => libc::EACCES,
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
    /// An atomic operation on an address that is not a multiple of 8, as peers name it or in this process.
    #[error("atomic operation at {addr:#x}, which is not aligned to 8 bytes")]
    Misaligned {
        /// The address, as peers name it.
        addr: u64,
    },
    /// A page is not mapped, or not with the protection needed. Seen in checked copies only; some bytes may have been copied.
    #[error("{len} bytes at {addr:#x} are not all mapped")]
    NotMapped {
        /// First address of the access, as peers name it.
        addr: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// The system refuses every call that checked copies could use (a seccomp filter, no file descriptors left).
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
            Self::Refused { errno } => errno,
        }
    }
}
