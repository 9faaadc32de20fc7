//! Registering memory with the core. The one place of this crate with `unsafe` is the function that registers memory of
//! somebody else, whose caller has to promise what the core asks for.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use urxe_stack::memory::{Access, Buffer, Mr, RegMrError};
use urxe_wire::{Lkey, Rkey};

use super::{RegionSlice, RemoteRegion, SliceError};
use crate::device::Device;
use crate::pd::ProtectionDomain;

/// A buffer and its registration. The core keeps the buffer mapped until the deregistration returned.
pub(super) struct OwnedRegistration {
    device: Device,
    mr: Mr,
    buffer: Arc<Buffer>,
}

impl OwnedRegistration {
    pub(super) fn new(
        pd: &ProtectionDomain,
        buffer: Buffer,
        iova: u64,
        access: Access,
    ) -> Result<Self, RegMrError> {
        let device = pd.device().clone();
        let buffer = Arc::new(buffer);
        let mr = device.core().memory().register_buffer(pd.id(), &buffer, 0..buffer.len(), iova, access)?;
        Ok(Self { device, mr, buffer })
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }
}

impl Drop for OwnedRegistration {
    fn drop(&mut self) {
        // Waits for copies in progress.
        let gone = self.device.core().memory().deregister(self.mr.lkey);
        debug_assert_eq!(gone, Ok(()), "a region keeps its key until it is deregistered");
    }
}

/// A registration of memory that the program owns, made by [`ProtectionDomain::register`]. Dropping it deregisters, after which
/// no byte of the memory moves any more.
pub struct ForeignRegion {
    pd: ProtectionDomain,
    mr: Mr,
}

impl ProtectionDomain {
    /// Registers `len` bytes at `addr` that somebody else owns (`ibv_reg_mr`). Peers and work requests name them by addresses
    /// from `iova` on, which has the same offset in a page as `addr`; `addr` itself is the usual choice.
    ///
    /// Prefer [`allocate`](Self::allocate), which is safe.
    ///
    /// # Errors
    /// [`RegMrError`]: what was wrong, what was given, what is allowed.
    ///
    /// # Safety
    /// From this call until the returned value was dropped (for ever if it is leaked):
    /// * `[addr, addr + len)` stays mapped, readable, and with [`Access::LOCAL_WRITE`] writable. With [`Access::ON_DEMAND`] pages may
    ///   come and go, except while a peer's atomic operation on them may be under way.
    /// * What is there may be read by anyone who has the key, and with `LOCAL_WRITE` be overwritten at any time, with any bytes,
    ///   by another thread: no value lives there for which some bytes are invalid.
    /// * No `&mut` to any of it is used, and with `LOCAL_WRITE` no `&` either, except to atomics or inside an `UnsafeCell` whose users
    ///   expect it. The program reads and writes it by atomic or volatile accesses, or when it knows that no peer and no
    ///   work request can touch it.
    pub unsafe fn register(
        &self,
        addr: NonNull<u8>,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<ForeignRegion, RegMrError> {
        let memory = self.device().core().memory();
        // SAFETY: the caller's promise is what is asked for here: the region is registered until `ForeignRegion::drop`.
        let mr = unsafe { memory.register(self.id(), addr.as_ptr(), len, iova, access) }?;
        Ok(ForeignRegion { pd: self.clone(), mr })
    }
}

impl ForeignRegion {
    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Length in bytes, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.mr.len
    }

    /// The address of its first byte, as work requests and peers name it.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.mr.iova
    }

    /// What it grants.
    #[must_use]
    pub fn access(&self) -> Access {
        self.mr.access
    }

    /// The owner's key.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.mr.lkey
    }

    /// The peers' key.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.mr.rkey
    }

    /// What a peer needs to reach it: address, length, key.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { addr: self.mr.iova, len: self.mr.len as u64, rkey: self.mr.rkey }
    }

    /// A part of it, for a work request. `range` counts bytes from 0.
    ///
    /// # Errors
    /// [`SliceError`].
    pub fn slice(&self, range: impl std::ops::RangeBounds<usize>) -> Result<RegionSlice<'_>, SliceError> {
        RegionSlice::new(&self.mr, range)
    }
}

impl Drop for ForeignRegion {
    fn drop(&mut self) {
        let gone = self.pd.device().core().memory().deregister(self.mr.lkey);
        debug_assert_eq!(gone, Ok(()), "a region keeps its key until it is deregistered");
    }
}

impl fmt::Debug for ForeignRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignRegion").field("mr", &self.mr).finish_non_exhaustive()
    }
}
