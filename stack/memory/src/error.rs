//! What can go wrong with registered memory, one variant a reason.
//!
//! Registration and deregistration answer a program, so those errors carry an `errno`.
//! [`AccessError`] and [`Fault`] answer the data path: for a peer's packet they become a NAK or a
//! drop, for a local work request a completion status, and for a caller of the safe API an error.

use crate::{Access, PdId};
use urxe_types::counters::Counter;
use urxe_wire::{Lkey, Qpn, Rkey};

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

    /// Why a region was not registered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum RegMrError {
        /// The length is 0. The kernel refuses it as well (`ib_umem_get`: no pages).
        #[error("length 0: a region has at least one byte")]
        ZeroLength = EINVAL,
        #[error("length {given}: a region of this device has {allowed} bytes at most")]
        TooLong { given: usize, allowed: u64 } = EINVAL,
        #[error("bytes {start} to {end} of a buffer of {len}")]
        OutsideBuffer { start: usize, end: usize, len: usize } = EINVAL,
        /// The whole address space (address 0, length `usize::MAX`) without `ON_DEMAND`, or with
        /// `ZERO_BASED`.
        #[error("the whole address space can be registered with ON_DEMAND and without ZERO_BASED \
                 only")]
        NotOnDemand = EINVAL,
        #[error("{len} bytes at {addr:#x} leave the address space")]
        Wraps { addr: usize, len: usize } = EINVAL,
        /// The range that peers would use leaves the 64-bit address space.
        #[error("{len} bytes at I/O virtual address {iova:#x} exceed 64 bits")]
        IovaWraps { iova: u64, len: usize } = EINVAL,
        /// The I/O virtual address has another offset within its page than the address in this
        /// process.
        #[error("I/O virtual address {iova:#x} and address {addr:#x} differ in their offset within \
                 a page of {page} bytes")]
        IovaOffset { addr: usize, iova: u64, page: usize } = EINVAL,
        /// Flags outside the known ones and outside the range of optional ones (bits 20 to 29).
        #[error("access flags {given:#x}: {unknown:#x} unknown, {:#x} known", Access::all().bits())]
        UnknownAccess { given: u32, unknown: u32 } = EINVAL,
        /// A peer may write only where the owner may (IBTA o10-38, `ib_check_mr_access`).
        #[error("{given:?} lacks LOCAL_WRITE, which REMOTE_WRITE and REMOTE_ATOMIC require")]
        NeedsLocalWrite { given: Access } = EINVAL,
        // The kernel counts pages in 32 bits, before it looks for them (`ib_umem_get`).
        #[error("{len} bytes at {addr:#x} are not all mapped")]
        NotMapped { addr: usize, len: usize } =
            if *len >> 12 > u32::MAX as usize { EINVAL } else { EFAULT },
        /// Part of the range is mapped without the protection that the access flags need, or lies
        /// behind the end of its file.
        #[error(
            "{len} bytes at {addr:#x} are not all {}",
            if *.write { "writable, which LOCAL_WRITE needs" } else { "readable" }
        )]
        NotAccessible { addr: usize, len: usize, write: bool } = EFAULT,
        /// Nothing of the range would survive a power failure, which FLUSH_PERSISTENT promises.
        #[error("{len} bytes at {addr:#x} are {why}; FLUSH_PERSISTENT needs a shared mapping of a \
                 file on a disk")]
        NotPersistent { addr: usize, len: usize, why: &'static str } = EINVAL,
        #[error("{max} memory regions are registered, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
    }

    /// Why a region was not deregistered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeregMrError {
        /// No region has this key: it never had one, or it was deregistered already.
        #[error("no region has the key {lkey}")]
        UnknownKey { lkey: Lkey } = EINVAL,
        /// Windows are bound to it: it stays (IBTA vol. 1, 10.6.7.2.6). The kernel's rxe says
        /// EINVAL.
        #[error("{windows} memory windows are bound to the region of key {lkey}: unbind or \
                 deallocate them first")]
        Busy { lkey: Lkey, windows: u32 } = EBUSY,
    }

    /// Why a region was not reregistered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ReregMrError {
        #[error("no region has the key {lkey}")]
        UnknownKey { lkey: Lkey } = EINVAL,
        #[error("nothing to change: give a translation, a protection domain or access flags")]
        Nothing = EINVAL,
        #[error("{windows} memory windows are bound to the region of key {lkey}: unbind or \
                 deallocate them first")]
        Busy { lkey: Lkey, windows: u32 } = EBUSY,
        #[error("the key {lkey} is of a fast-registration region, which work requests register")]
        FastRegistration { lkey: Lkey } = EOPNOTSUPP,
        /// It registers device memory, or memory that is not a buffer of the table's.
        #[error("the region of key {lkey} registers memory of another sort, which cannot be \
                 exchanged like this")]
        OtherMemory { lkey: Lkey } = EOPNOTSUPP,
        /// `ZERO_BASED` decides what addresses mean, so it changes with the translation only.
        #[error("{given:?}: ZERO_BASED can change only together with the translation")]
        ZeroBasedWithoutTranslation { given: Access } = EINVAL,
        /// The new place or the new rights.
        #[error(transparent)] Terms(#[from] RegMrError),
    }

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

    /// Why a fast-registration region was not allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AllocMrError {
        /// `allowed`: the device's `max_fast_reg_page_list_len`.
        #[error("a region of {given} pages; at least 1 and at most {allowed} are allowed")]
        Pages { given: u32, allowed: u32 } = EINVAL,
        #[error("{max} memory regions are registered, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
    }

    /// Why nothing was mapped to a fast-registration region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum MapError {
        #[error("no fast-registration region has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
        #[error("a page size of {given}; powers of 2 from 4096 on are allowed")]
        PageSize { given: usize } = EINVAL,
        #[error("nothing to map: at least one piece, each of at least one byte")]
        Empty = EINVAL,
        #[error("piece {index}: bytes {start} to {end} of a buffer of {len}")]
        OutsideBuffer { index: usize, start: usize, end: usize, len: usize } = EINVAL,
        /// A piece is of a file that somebody may shorten, so its pages may go.
        #[error("piece {index} is of a file that is not sealed against shrinking: register it as a \
                 region")]
        MayShrink { index: usize } = EOPNOTSUPP,
        #[error("{len} bytes at {addr:#x} leave the address space")]
        Wraps { addr: usize, len: usize } = EINVAL,
        /// A piece does not begin or end at the boundary of a page where the list goes on.
        #[error("piece {index}, {len} bytes at {addr:#x}: where a list goes on, pieces meet at \
                 boundaries of pages of {page_size} bytes")]
        Gap { index: usize, addr: usize, len: usize, page_size: usize } = EINVAL,
        #[error("{given} pages; the region was allocated for {allowed}")]
        TooManyPages { given: usize, allowed: usize } = ENOMEM,
        /// The I/O virtual address has another offset in its page than the first piece.
        #[error("I/O virtual address {iova:#x} and address {addr:#x} differ in their offset within \
                 a page of {page_size} bytes")]
        IovaOffset { addr: usize, iova: u64, page_size: usize } = EINVAL,
        #[error("{len} bytes at I/O virtual address {iova:#x} exceed 64 bits")]
        IovaWraps { iova: u64, len: u64 } = EINVAL,
        #[error("{len} bytes at {addr:#x} are not all mapped")]
        NotMapped { addr: usize, len: usize } = EFAULT,
        /// Part of a piece is not readable, or not writable.
        #[error(
            "{len} bytes at {addr:#x} are not all {}",
            if *.write { "writable" } else { "readable" }
        )]
        NotAccessible { addr: usize, len: usize, write: bool } = EFAULT,
    }

    /// Why a fast-registration region did not become valid. The work request completes with
    /// [`LocQpOpErr`](urxe_types::completion::WcStatus::LocQpOpErr).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum FastRegError {
        /// There is none whose key has these upper 24 bits.
        #[error("no fast-registration region has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
        #[error("the region {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
        WrongPd { key: Rkey, given: PdId, owner: PdId } = EPERM,
        #[error("the region {key} is valid already: invalidate it first")]
        NotFree { key: Rkey } = EBUSY,
        #[error("nothing is mapped to the region {key}")]
        NotMapped { key: Rkey } = EINVAL,
        /// A right that the memory which was mapped cannot have.
        #[error(transparent)] Memory(#[from] RegMrError) = EINVAL,
        /// Rights that do not go together, or not with what was mapped.
        #[error("{given:?}: allowed are {allowed:?}, and REMOTE_WRITE and REMOTE_ATOMIC require \
                 LOCAL_WRITE")]
        Access { given: Access, allowed: Access } = EINVAL,
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
