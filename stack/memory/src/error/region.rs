//! What can go wrong with making, taking away and changing regions.

use crate::Access;
use urxe_wire::Lkey;

/// Why a region was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegMrError {
    /// The length is 0. The kernel refuses it as well (`ib_umem_get`: no pages).
    #[error("length 0: a region has at least one byte")]
    ZeroLength,
    /// It is longer than the device allows.
    #[error("length {given}: a region of this device has {allowed} bytes at most")]
    TooLong {
        /// What was asked for, in bytes.
        given: usize,
        /// What is allowed.
        allowed: u64,
    },
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
    /// The whole address space (address 0, length `usize::MAX`) without `ON_DEMAND`, or with
    /// `ZERO_BASED`.
    #[error("the whole address space can be registered with ON_DEMAND and without ZERO_BASED only")]
    NotOnDemand,
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
    /// Part of the range is mapped without the protection that the access flags need, or lies
    /// behind the end of its file.
    #[error("{len} bytes at {addr:#x} are not all {}", if *.write { "writable, which LOCAL_WRITE needs" } else { "readable" })]
    NotAccessible {
        /// Start of the range in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
        /// Whether the region asked to be written.
        write: bool,
    },
    /// Nothing of the range would survive a power failure, which FLUSH_PERSISTENT promises.
    #[error(
        "{len} bytes at {addr:#x} are {why}; FLUSH_PERSISTENT needs a shared mapping of a file on a disk"
    )]
    NotPersistent {
        /// Start of the range in this process.
        addr: usize,
        /// Its length in bytes.
        len: usize,
        /// What its memory is.
        why: &'static str,
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
            | Self::TooLong { .. }
            | Self::OutsideBuffer { .. }
            | Self::NotOnDemand
            | Self::Wraps { .. }
            | Self::IovaWraps { .. }
            | Self::IovaOffset { .. }
            | Self::UnknownAccess { .. }
            | Self::NeedsLocalWrite { .. }
            | Self::NotPersistent { .. } => libc::EINVAL,
            // The kernel counts pages in 32 bits, before it looks for them (`ib_umem_get`).
            Self::NotMapped { len, .. } if len >> 12 > u32::MAX as usize => libc::EINVAL,
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
    /// Windows are bound to it: it stays (IBTA vol. 1, 10.6.7.2.6). The kernel's rxe says EINVAL.
    #[error(
        "{windows} memory windows are bound to the region of key {lkey}: unbind or deallocate them first"
    )]
    Busy {
        /// What was given.
        lkey: Lkey,
        /// How many.
        windows: u32,
    },
}

impl DeregMrError {
    /// What `ibv_dereg_mr` returns.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::UnknownKey { .. } => libc::EINVAL,
            Self::Busy { .. } => libc::EBUSY,
        }
    }
}

/// Why a region was not reregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReregMrError {
    /// No region has this key.
    #[error("no region has the key {lkey}")]
    UnknownKey {
        /// What was given.
        lkey: Lkey,
    },
    /// Nothing was to be changed.
    #[error("nothing to change: give a translation, a protection domain or access flags")]
    Nothing,
    /// Windows are bound to it.
    #[error(
        "{windows} memory windows are bound to the region of key {lkey}: unbind or deallocate them first"
    )]
    Busy {
        /// What was given.
        lkey: Lkey,
        /// How many.
        windows: u32,
    },
    /// It is a fast-registration region, which work requests change.
    #[error("the key {lkey} is of a fast-registration region, which work requests register")]
    FastRegistration {
        /// What was given.
        lkey: Lkey,
    },
    /// It registers device memory, or memory that is not a buffer of the table's.
    #[error(
        "the region of key {lkey} registers memory of another sort, which cannot be exchanged like this"
    )]
    OtherMemory {
        /// What was given.
        lkey: Lkey,
    },
    /// `ZERO_BASED` decides what addresses mean, so it changes with the translation only.
    #[error("{given:?}: ZERO_BASED can change only together with the translation")]
    ZeroBasedWithoutTranslation {
        /// The flags given.
        given: Access,
    },
    /// The new place or the new rights.
    #[error(transparent)]
    Terms(#[from] RegMrError),
}

impl ReregMrError {
    /// The `errno` for `ibv_rereg_mr`.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::UnknownKey { .. } | Self::Nothing | Self::ZeroBasedWithoutTranslation { .. } => {
                libc::EINVAL
            }
            Self::Busy { .. } => libc::EBUSY,
            Self::FastRegistration { .. } | Self::OtherMemory { .. } => libc::EOPNOTSUPP,
            Self::Terms(error) => error.errno(),
        }
    }
}
