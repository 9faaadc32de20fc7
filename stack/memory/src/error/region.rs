//! What can go wrong with making, taking away and changing regions.

use crate::Access;
use urxe_wire::Lkey;

urxe_types::errors! {
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
}
