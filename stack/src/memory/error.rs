//! What can go wrong with registered memory, one variant a reason.
//!
//! Registration and deregistration answer a program, so those errors carry an `errno`. [`AccessError`] and [`Fault`]
//! answer the data path: for a peer's packet they become a NAK or a drop, for a local work request a
//! completion status, and for a caller of the safe API an error.

use super::{Access, PdId};
use urxe_wire::{Lkey, Qpn, Rkey};

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
    /// The whole address space (address 0, length `usize::MAX`) without `ON_DEMAND`, or with `ZERO_BASED`.
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
    #[error("the region of key {lkey} registers memory of another sort, which cannot be exchanged like this")]
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

/// Why a window was not bound. The work request completes with [`MwBindErr`](crate::cq::WcStatus::MwBindErr).
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
    #[error("{length} bytes at {addr:#x} are not inside the region's {region_len} bytes at {start:#x}")]
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
    #[error("piece {index} is of a file that is not sealed against shrinking: register it as a region")]
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
/// [`LocQpOpErr`](crate::cq::WcStatus::LocQpOpErr).
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
    #[error("{given:?}: allowed are {allowed:?}, and REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE")]
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

/// Why an access is not allowed. A responder answers each of these with a remote access error NAK (IBTA C9-63).
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
            Self::UnknownKey { .. } | Self::StaleKey { .. } | Self::OutOfBounds { .. } => libc::EINVAL,
            Self::WrongPd { .. } | Self::WrongQp { .. } | Self::Window { .. } | Self::Denied { .. } => {
                libc::EACCES
            }
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
    /// What was written cannot be made to last: its memory is no shared mapping of a file on a disk (any more), or the system failed to write it.
    #[error("the bytes cannot be made to survive a power failure: error {errno}")]
    NotFlushed {
        /// The system's `errno`, or EINVAL.
        errno: i32,
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
            Self::Refused { errno } | Self::NotFlushed { errno } => errno,
        }
    }
}
