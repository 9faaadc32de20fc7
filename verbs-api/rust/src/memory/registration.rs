//! Registration of memory with another owner.
//!
//! This file and its folder have the only `unsafe` code of this crate. Their functions register or
//! map memory of the program, whose caller must keep the promises that the core requires.
#![allow(unsafe_code)]

mod address_space;

use std::ops::Range;
use std::ptr::NonNull;

use urxe_stack::allocate;
use urxe_stack::memory::{
    Access, Advice, AdviseError, AdviseRange, MapError, Mr, Piece, RegMrError,
};

pub use self::address_space::AddressSpace;
use super::{FastRegion, region};
use crate::pd::ProtectionDomain;

/// Faults in `len` bytes at `offset` of a region.
pub(super) fn prefetch(
    pd: &ProtectionDomain,
    mr: &Mr,
    offset: usize,
    len: usize,
) -> Result<(), AdviseError> {
    let writes = mr.access.contains(Access::LOCAL_WRITE);
    let advice = if writes { Advice::PrefetchWrite } else { Advice::Prefetch };
    let addr = mr.iova.wrapping_add(offset as u64);
    let range = AdviseRange { addr, len: len as u64, lkey: mr.lkey };
    pd.device().core().memory().advise(pd.memory_id(), advice, &[range])
}

/// A registration of memory that the program owns, made by [`ProtectionDomain::register`].
///
/// Dropping the region unbinds all [windows](crate::MemoryWindow) of it and deregisters it. After
/// that, the device does not access the memory any more.
pub struct ForeignRegion {
    pd: ProtectionDomain,
    mr: Mr,
    /// The address in this process. Its provenance is exposed. An integer keeps the type `Send` and
    /// `Sync`.
    addr: usize,
}

impl ProtectionDomain {
    /// Registers `len` bytes at `addr`, which have another owner (`ibv_reg_mr`).
    ///
    /// The addresses of the region start at `iova`, whose offset in its page must equal that of
    /// `addr`. The usual value is `addr` itself. Prefer [`allocate`](Self::allocate), which is
    /// safe.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// use urxe::{Access, ForeignRegion};
    /// # use urxe::sim::Fabric;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// let counters: Vec<AtomicU64> = (0..512).map(AtomicU64::new).collect();
    /// let addr = NonNull::from(counters.as_slice()).cast::<u8>();
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    /// // SAFETY: the region goes before the counters, which any thread may write at any time.
    /// let region: ForeignRegion =
    ///     unsafe { pd.register(addr, 4096, addr.as_ptr() as u64, rights) }?;
    /// assert_eq!(region.remote().len, 4096);
    /// drop(region);
    /// assert_eq!(counters[5].load(Ordering::Acquire), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`RegMrError`], which names the given value and the values that are allowed.
    ///
    /// # Safety
    /// The caller promises the following, from this call until the returned value is dropped. If
    /// the value is leaked, or dropped in a forked child only, the promises hold forever:
    /// * `[addr, addr + len)` stays mapped and readable, and with [`Access::LOCAL_WRITE`]
    ///   writable. With [`Access::ON_DEMAND`], pages may come and go. If the system allows no
    ///   helper process for atomic operations (a filter of system calls, valgrind), an atomic
    ///   operation or ATOMIC WRITE first checks its page. If the page vanishes right after the
    ///   check, SIGSEGV or SIGBUS ends the process.
    /// * Any holder of the key may read the memory. With `LOCAL_WRITE`, another thread may
    ///   overwrite the memory at any time with any bytes. The memory therefore holds no value for
    ///   which some bytes are invalid.
    /// * No `&mut` to the memory is used, and with `LOCAL_WRITE` no `&` either, except to atomics
    ///   or inside an `UnsafeCell` whose users expect this. The program accesses the memory by
    ///   atomic or volatile operations, or while no peer and no work request can access it.
    pub unsafe fn register(
        &self,
        addr: NonNull<u8>,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<ForeignRegion, RegMrError> {
        let memory = self.device().core().memory();
        // SAFETY: the caller makes the promises that `Memory::register` requires. The region is
        // registered until `ForeignRegion::drop`.
        let mr = unsafe { memory.register(self.memory_id(), addr.as_ptr(), len, iova, access) }?;
        Ok(ForeignRegion { pd: self.clone(), mr, addr: addr.as_ptr().expose_provenance() })
    }
}

impl ForeignRegion {
    /// Faults in `len` bytes at `offset` (`ibv_advise_mr`), as
    /// [`MemoryRegion::prefetch`](super::MemoryRegion::prefetch) does. The region must have
    /// [`Access::ON_DEMAND`].
    ///
    /// # Errors
    /// Fails with [`AdviseError`], and with EFAULT if part of the memory is not mapped.
    pub fn prefetch(&self, offset: usize, len: usize) -> Result<(), AdviseError> {
        prefetch(&self.pd, &self.mr, offset, len)
    }
}

region!(ForeignRegion);

impl Drop for ForeignRegion {
    fn drop(&mut self) {
        // The program may free the memory after this call, so the region cannot outlive its handle
        // until its windows are unbound, as a [`MemoryRegion`](super::MemoryRegion) does.
        self.pd.revoke(self.mr.lkey);
    }
}

impl FastRegion {
    /// Maps parts of memory with another owner, in this order, as [`map_parts`](Self::map_parts)
    /// does. The call faults in the pages. Peers can get write access if all regions have
    /// [`Access::LOCAL_WRITE`].
    ///
    /// # Errors
    /// Fails as [`map`](Self::map) does, and if part of the memory is not mapped. The former
    /// mapping stays then.
    ///
    /// # Safety
    /// The promises of [`register`](ProtectionDomain::register) must hold for every part until this
    /// region is dropped, or is mapped and registered again. They must hold even if the
    /// [`ForeignRegion`] is dropped before. All pages must stay mapped, even if the region is on
    /// demand.
    pub unsafe fn map_foreign(
        &mut self,
        parts: &[(&ForeignRegion, Range<usize>)],
        iova: u64,
    ) -> Result<(), MapError> {
        let mut pieces = allocate::vec(parts.len())?;
        for (index, (region, range)) in parts.iter().enumerate() {
            let (Range { start, end }, len) = (range.clone(), region.len());
            if start > end || end > len {
                return Err(MapError::OutsideBuffer { index, start, end, len });
            }
            let addr = std::ptr::with_exposed_provenance_mut::<u8>(region.addr).wrapping_add(start);
            pieces.push(Piece { addr, len: end - start });
        }
        let writable =
            parts.iter().all(|(region, _)| region.access().contains(Access::LOCAL_WRITE));
        // The device refuses parts that together exceed the addresses.
        let len = pieces.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.len));
        self.map_with(iova, len, |memory, key, page| {
            // SAFETY: the caller makes the promises that `Memory::map_fast` requires.
            unsafe { memory.map_fast(key, &pieces, page, iova, writable) }
        })
    }
}
