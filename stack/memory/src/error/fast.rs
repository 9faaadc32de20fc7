//! What can go wrong with fast registration.

use super::RegMrError;
use crate::{Access, PdId};
use urxe_wire::Rkey;

/// Why a fast-registration region was not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocMrError {
    /// No page, or more than the device allows.
    #[error("a region of {given} pages; at least 1 and at most {allowed} are allowed")]
    Pages {
        /// What was given.
        given: u32,
        /// The device's `max_fast_reg_page_list_len`.
        allowed: u32,
    },
    /// The device holds as many regions as it may.
    #[error("{max} memory regions are registered, and no more are allowed")]
    TooMany {
        /// The device's limit.
        max: u32,
    },
}

impl AllocMrError {
    /// What `ib_alloc_mr` answers.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Pages { .. } => libc::EINVAL,
            Self::TooMany { .. } => libc::ENOMEM,
        }
    }
}

/// Why nothing was mapped to a fast-registration region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// There is no such region.
    #[error("no fast-registration region has the key {key}")]
    UnknownKey {
        /// What was given.
        key: Rkey,
    },
    /// The page size.
    #[error("a page size of {given}; powers of 2 from 4096 on are allowed")]
    PageSize {
        /// What was given.
        given: usize,
    },
    /// No piece, or one without a byte.
    #[error("nothing to map: at least one piece, each of at least one byte")]
    Empty,
    /// A piece is not inside its buffer.
    #[error("piece {index}: bytes {start} to {end} of a buffer of {len}")]
    OutsideBuffer {
        /// Which piece.
        index: usize,
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
        /// The buffer's length in bytes.
        len: usize,
    },
    /// A piece is of a file that somebody may shorten, so its pages may go.
    #[error(
        "piece {index} is of a file that is not sealed against shrinking: register it as a region"
    )]
    MayShrink {
        /// Which piece.
        index: usize,
    },
    /// A piece leaves the address space.
    #[error("{len} bytes at {addr:#x} leave the address space")]
    Wraps {
        /// Start of the piece in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// A piece does not begin or end at the boundary of a page where the list goes on.
    #[error(
        "piece {index}, {len} bytes at {addr:#x}: where a list goes on, pieces meet at boundaries of pages of {page_size} bytes"
    )]
    Gap {
        /// Which piece.
        index: usize,
        /// Its start in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
        /// The page size.
        page_size: usize,
    },
    /// More pages than the region was allocated for.
    #[error("{given} pages; the region was allocated for {allowed}")]
    TooManyPages {
        /// What was given.
        given: usize,
        /// What the region holds.
        allowed: usize,
    },
    /// The I/O virtual address has another offset in its page than the first piece.
    #[error(
        "I/O virtual address {iova:#x} and address {addr:#x} differ in their offset within a page of {page_size} bytes"
    )]
    IovaOffset {
        /// Start of the first piece in this process.
        addr: usize,
        /// What was given.
        iova: u64,
        /// The page size.
        page_size: usize,
    },
    /// The addresses leave 64 bits.
    #[error("{len} bytes at I/O virtual address {iova:#x} exceed 64 bits")]
    IovaWraps {
        /// What was given.
        iova: u64,
        /// The length of all pieces in bytes.
        len: u64,
    },
    /// Part of a piece is not mapped.
    #[error("{len} bytes at {addr:#x} are not all mapped")]
    NotMapped {
        /// Start of the piece in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// Part of a piece is not readable, or not writable.
    #[error("{len} bytes at {addr:#x} are not all {}", if *.write { "writable" } else { "readable" })]
    NotAccessible {
        /// Start of the piece in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
        /// Whether it was to be written.
        write: bool,
    },
}

impl MapError {
    /// The nearest `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotMapped { .. } | Self::NotAccessible { .. } => libc::EFAULT,
            Self::MayShrink { .. } => libc::EOPNOTSUPP,
            Self::TooManyPages { .. } => libc::ENOMEM,
            _ => libc::EINVAL,
        }
    }
}

/// Why a fast-registration region did not become valid. The work request completes with
/// [`LocQpOpErr`](urxe_types::completion::WcStatus::LocQpOpErr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FastRegError {
    /// There is none whose key has these upper 24 bits.
    #[error("no fast-registration region has the key {key}")]
    UnknownKey {
        /// What was given.
        key: Rkey,
    },
    /// It belongs to another protection domain.
    #[error("the region {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
    WrongPd {
        /// What was given.
        key: Rkey,
        /// The queue pair's protection domain.
        given: PdId,
        /// The region's.
        owner: PdId,
    },
    /// It is valid already.
    #[error("the region {key} is valid already: invalidate it first")]
    NotFree {
        /// What was given.
        key: Rkey,
    },
    /// Nothing was mapped to it.
    #[error("nothing is mapped to the region {key}")]
    NotMapped {
        /// What was given.
        key: Rkey,
    },
    /// A right that the memory which was mapped cannot have.
    #[error(transparent)]
    Memory(#[from] RegMrError),
    /// Rights that do not go together, or not with what was mapped.
    #[error(
        "{given:?}: allowed are {allowed:?}, and REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE"
    )]
    Access {
        /// What was given.
        given: Access,
        /// What the mapping allows.
        allowed: Access,
    },
}

impl FastRegError {
    /// The nearest `errno`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::WrongPd { .. } => libc::EPERM,
            Self::NotFree { .. } => libc::EBUSY,
            _ => libc::EINVAL,
        }
    }
}
