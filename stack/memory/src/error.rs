//! Errors of registered memory, with one variant for each reason.
//!
//! Errors of registration and deregistration go to a program, so they carry an `errno`.
//! [`AccessError`] and [`Fault`] occur on the data path. For a packet of a peer they cause a NAK or
//! a drop, for a local work request a completion status, and for a caller of the safe API an error.

use crate::{Access, PdId};
use urxe_types::allocate::OutOfMemory;
use urxe_types::counters::Counter;
use urxe_wire::{Lkey, Qpn, Rkey};

urxe_types::errors! {
    /// The reason why an access is not allowed. A responder answers each of these with a remote
    /// access error NAK (IBTA C9-63).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AccessError {
        #[error("no region has the key {key:#x}")]
        UnknownKey { key: u32 } = EINVAL,
        /// The region or window exists, but its key has changed, or it is not valid.
        #[error("key {key:#x} is stale: the region or window has another key by now, or none")]
        StaleKey { key: u32 } = EINVAL,
        /// An access by a type 2 window through another queue pair than the one that bound the
        /// window.
        #[error("key {key:#x} belongs to a window that another queue pair bound, {owner}")]
        WrongQp { key: u32, owner: Qpn } = EACCES,
        /// A local access by the key of a window, which only peers may use.
        #[error("key {key:#x} belongs to a window; local accesses need the key of a region")]
        Window { key: u32 } = EACCES,
        #[error("key {key:#x} belongs to {owner:?}, not to {given:?}")]
        WrongPd { key: u32, given: PdId, owner: PdId } = EACCES,
        #[error("key {key:#x} grants {granted:?}, not {need:?}")]
        Denied { key: u32, need: Access, granted: Access } = EACCES,
        /// `start`: first address of the region for peers.
        #[error("{len} bytes at {addr:#x} are not inside the {region_len} bytes at {start:#x} of \
                 key {key:#x}")]
        OutOfBounds { key: u32, addr: u64, len: u64, start: u64, region_len: u64 } = EINVAL,
    }

    /// The reason why a copy or an atomic operation under a pin failed, possibly after a part was
    /// copied.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum Fault {
        /// `addr`: first address of the access for peers.
        #[error("{len} bytes at {addr:#x} are not inside the pinned region")]
        OutOfBounds { addr: u64, len: u64 } = EINVAL,
        #[error("the pinned region is not writable")]
        ReadOnly = EACCES,
        /// The address of an atomic operation is not a multiple of 8, for peers or in this process.
        ///
        /// `addr`: the address for peers.
        #[error("atomic operation at {addr:#x}, which is not aligned to 8 bytes")]
        Misaligned { addr: u64 } = EINVAL,
        /// A page is not mapped, or lacks the required protection. Only checked copies report this;
        /// some bytes may have been copied.
        ///
        /// `addr`: first address of the access for peers.
        #[error("{len} bytes at {addr:#x} are not all mapped")]
        NotMapped { addr: u64, len: u64 } = EFAULT,
        /// The written bytes cannot be made persistent. Either the memory is not, or no longer, a
        /// shared mapping of a file on a disk, or the system failed to write the bytes.
        ///
        /// `errno`: the `errno` of the system, or EINVAL.
        #[error("the bytes cannot be made to survive a power failure: error {errno}")]
        NotFlushed { errno: i32 } = *errno,
        /// The system refuses every call for checked copies (a seccomp filter, or no file
        /// descriptors left).
        ///
        /// `errno`: the `errno` of the last call.
        #[error("no system call for checked copies is usable: error {errno}")]
        Refused { errno: i32 } = *errno,
    }

    /// The reason why a region was not registered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum RegMrError {
        /// The length is 0. The kernel refuses this as well (`ib_umem_get`: no pages).
        #[error("length 0: a region has at least one byte")]
        ZeroLength = EINVAL,
        #[error("length {given}: a region of this device has {allowed} bytes at most")]
        TooLong { given: usize, allowed: u64 } = EINVAL,
        #[error("bytes {start} to {end} are not inside the buffer of {len} bytes")]
        OutsideBuffer { start: usize, end: usize, len: usize } = EINVAL,
        /// The whole address space (address 0, length `usize::MAX`) without `ON_DEMAND`, or with
        /// `ZERO_BASED`.
        #[error("a registration of the whole address space needs ON_DEMAND and must not have \
                 ZERO_BASED")]
        NotOnDemand = EINVAL,
        #[error("{len} bytes at {addr:#x} exceed the address space")]
        Wraps { addr: usize, len: usize } = EINVAL,
        /// The range for peers exceeds the 64-bit address space.
        #[error("{len} bytes at I/O virtual address {iova:#x} exceed 64 bits")]
        IovaWraps { iova: u64, len: usize } = EINVAL,
        /// The I/O virtual address and the address in this process have different offsets in their
        /// pages.
        #[error("I/O virtual address {iova:#x} and address {addr:#x} differ in their offset within \
                 a page of {page} bytes")]
        IovaOffset { addr: usize, iova: u64, page: usize } = EINVAL,
        /// Flags that are neither known nor in the range of optional flags (bits 20 to 29).
        #[error("access flags {given:#x}: {unknown:#x} is unknown, {:#x} is known",
            Access::all().bits())]
        UnknownAccess { given: u32, unknown: u32 } = EINVAL,
        /// A peer may write only if the owner may (IBTA o10-38, `ib_check_mr_access`).
        #[error("{given:?} lacks LOCAL_WRITE, which REMOTE_WRITE and REMOTE_ATOMIC require")]
        NeedsLocalWrite { given: Access } = EINVAL,
        // The kernel counts pages in 32 bits before it looks for them (`ib_umem_get`).
        #[error("{len} bytes at {addr:#x} are not all mapped")]
        NotMapped { addr: usize, len: usize } =
            if *len >> 12 > u32::MAX as usize { EINVAL } else { EFAULT },
        /// Part of the range lacks the protection that the access flags need, or is beyond the end
        /// of its file.
        #[error(
            "{len} bytes at {addr:#x} are not all {}",
            if *.write { "writable, which LOCAL_WRITE needs" } else { "readable" }
        )]
        NotAccessible { addr: usize, len: usize, write: bool } = EFAULT,
        /// The memory would not survive a power failure, which FLUSH_PERSISTENT requires.
        #[error("{len} bytes at {addr:#x} are {why}; FLUSH_PERSISTENT needs a shared mapping of a \
                 file on a disk")]
        NotPersistent { addr: usize, len: usize, why: &'static str } = EINVAL,
        #[error("{max} memory regions are registered, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
        /// The system has no memory for the entry of the key table.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why a region was not deregistered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeregMrError {
        /// No region has this key. There never was one, or it is already deregistered.
        #[error("no region has the key {lkey}")]
        UnknownKey { lkey: Lkey } = EINVAL,
        /// Windows are bound to the region, so it stays (IBTA vol. 1, 10.6.7.2.6). The kernel's rxe
        /// returns EINVAL.
        #[error("{windows} memory windows are bound to the region of key {lkey}: unbind or \
                 deallocate them first")]
        Busy { lkey: Lkey, windows: u32 } = EBUSY,
    }

    /// The reason why a region was not reregistered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ReregMrError {
        #[error("no region has the key {lkey}")]
        UnknownKey { lkey: Lkey } = EINVAL,
        #[error("nothing to change: give a translation, a protection domain or access flags")]
        Nothing = EINVAL,
        #[error("{windows} memory windows are bound to the region of key {lkey}: unbind or \
                 deallocate them first")]
        Busy { lkey: Lkey, windows: u32 } = EBUSY,
        #[error("the key {lkey} belongs to a fast-registration region, which work requests \
                 register")]
        FastRegistration { lkey: Lkey } = EOPNOTSUPP,
        /// The region registers device memory, or memory that is not a buffer of the table.
        #[error("the region of key {lkey} registers memory of another kind, which cannot be \
                 exchanged like this")]
        OtherMemory { lkey: Lkey } = EOPNOTSUPP,
        #[error("the region is the whole address space: register the other memory separately")]
        WholeAddressSpace = EOPNOTSUPP,
        /// `ZERO_BASED` defines the meaning of addresses, so it changes only with the translation.
        #[error("{given:?}: ZERO_BASED can change only together with the translation")]
        ZeroBasedWithoutTranslation { given: Access } = EINVAL,
        /// The new translation or the new access flags are not allowed.
        #[error(transparent)] Terms(#[from] RegMrError),
    }

    /// The reason why a window was not allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AllocMwError {
        #[error("{max} memory windows are allocated, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
        /// The system has no memory for the entry of the key table.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why a window was not deallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeallocMwError {
        #[error("no memory window has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
    }

    /// The reason why a window was not bound. The work request completes with
    /// [`MwBindErr`](urxe_types::completion::WcStatus::MwBindErr).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum BindError {
        /// No window has this key, or the key has changed.
        #[error("no memory window has the key {key}")]
        UnknownWindow { key: Rkey } = EINVAL,
        /// No region has this key, or the region is not valid.
        #[error("no valid region has the key {lkey}")]
        UnknownRegion { lkey: Lkey } = EINVAL,
        #[error("access flags {given:?}: a window cannot grant {unknown:?}")]
        Access { given: Access, unknown: Access } = EOPNOTSUPP,
        /// The window belongs to another protection domain (C10-72).
        #[error("the window {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
        WindowPd { key: Rkey, given: PdId, owner: PdId } = EPERM,
        #[error("the region {lkey} belongs to {owner:?}, not to the queue pair's {given:?}")]
        RegionPd { lkey: Lkey, given: PdId, owner: PdId } = EPERM,
        /// The addresses of a type 1 window are those of the region (o10-36.2.2).
        #[error("a type 1 window cannot be zero-based")]
        ZeroBasedType1 = EINVAL,
        /// A type 2 window is already bound (o10-37.2.30).
        #[error("the type 2 window {key} is already bound: invalidate the window first")]
        NotFree { key: Rkey } = EBUSY,
        /// A bind of zero bytes unbinds only type 1 windows (o10-37.2.40).
        #[error("a type 2 window cannot be bound to zero bytes: invalidate the window")]
        EmptyType2 = EINVAL,
        /// A type 2 window belongs to the queue pair that binds it.
        #[error("only a queue pair can bind a type 2 window")]
        NoQp = EINVAL,
        /// The region does not allow windows (C10-73).
        #[error("the region grants {granted:?}, without MW_BIND")]
        NeedsMwBind { granted: Access } = EINVAL,
        /// The region is zero-based; `rdma_rxe` refuses this as well.
        #[error("windows cannot be bound to the zero-based region {lkey}")]
        ZeroBasedRegion { lkey: Lkey } = EINVAL,
        /// The window allows peers to write memory that the owner may not write (C10-74).
        #[error("a window with {given:?} needs a region with LOCAL_WRITE; this one grants \
                 {granted:?}")]
        NeedsLocalWrite { given: Access, granted: Access } = EINVAL,
        /// An access right that this part of the region's memory cannot have.
        #[error(transparent)] Memory(#[from] RegMrError) = EINVAL,
        /// The window is not completely inside the region (C10-75).
        #[error("{length} bytes at {addr:#x} are not inside the region's {region_len} bytes at \
                 {start:#x}")]
        OutOfBounds { addr: u64, length: u64, start: u64, region_len: u64 } = EINVAL,
    }

    /// The reason why a fast-registration region was not allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AllocMrError {
        /// `allowed`: the `max_fast_reg_page_list_len` of the device.
        #[error("the region has {given} pages; at least 1 and at most {allowed} are allowed")]
        Pages { given: u32, allowed: u32 } = EINVAL,
        #[error("{max} memory regions are registered, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
        /// The system has no memory for the page lists, or for the entry of the key table.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why no memory was mapped to a fast-registration region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum MapError {
        #[error("no fast-registration region has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
        #[error("the page size is {given}; powers of 2 from 4096 on are allowed")]
        PageSize { given: usize } = EINVAL,
        #[error("nothing to map: at least one piece, each of at least one byte")]
        Empty = EINVAL,
        #[error("piece {index}: bytes {start} to {end} are not inside the buffer of {len} bytes")]
        OutsideBuffer { index: usize, start: usize, end: usize, len: usize } = EINVAL,
        /// A piece is from a file that another process may truncate, so its pages may vanish.
        #[error("piece {index} is of a file that is not sealed against shrinking: register it as a \
                 region")]
        MayShrink { index: usize } = EOPNOTSUPP,
        #[error("{len} bytes at {addr:#x} exceed the address space")]
        Wraps { addr: usize, len: usize } = EINVAL,
        /// A piece inside the list does not begin or end at a page boundary.
        #[error("piece {index}, {len} bytes at {addr:#x}: where a list goes on, pieces meet at \
                 boundaries of pages of {page_size} bytes")]
        Gap { index: usize, addr: usize, len: usize, page_size: usize } = EINVAL,
        #[error("the mapping has {given} pages; the region was allocated for {allowed}")]
        TooManyPages { given: usize, allowed: usize } = ENOMEM,
        /// The I/O virtual address and the first piece have different offsets in their pages.
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
        /// The system has no memory for a copy of the list of pieces.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why a fast-registration region did not become valid. The work request completes
    /// with [`LocQpOpErr`](urxe_types::completion::WcStatus::LocQpOpErr).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum FastRegError {
        /// No fast-registration region has a key with these upper 24 bits.
        #[error("no fast-registration region has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
        #[error("the region {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
        WrongPd { key: Rkey, given: PdId, owner: PdId } = EPERM,
        #[error("the region {key} is already valid: invalidate the region first")]
        NotFree { key: Rkey } = EBUSY,
        #[error("nothing is mapped to the region {key}")]
        NotMapped { key: Rkey } = EINVAL,
        /// An access right that the mapped memory cannot have.
        #[error(transparent)] Memory(#[from] RegMrError) = EINVAL,
        /// Access rights that are not allowed together, or not for the mapped memory.
        #[error("access flags {given:?}: {allowed:?} are allowed, and REMOTE_WRITE and \
                 REMOTE_ATOMIC require LOCAL_WRITE")]
        Access { given: Access, allowed: Access } = EINVAL,
    }
}

impl From<&AccessError> for Counter {
    /// Returns the counter of a peer's access that was refused.
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
    /// Returns the counter of a peer's access that was allowed and failed.
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::NotMapped { .. } | Fault::Refused { .. } => Self::AccessNotMapped,
            Fault::NotFlushed { .. } => Self::FlushFailed,
            // A pin allows no more than was checked. The alignment of an atomic operation is
            // checked for both addresses.
            Fault::ReadOnly => Self::AccessDenied,
            Fault::OutOfBounds { .. } | Fault::Misaligned { .. } => Self::AccessOutOfBounds,
        }
    }
}
