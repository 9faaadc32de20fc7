//! Registering memory with the core. The one place of this crate with `unsafe`, and its folder, are
//! the functions that register or map memory of somebody else, whose caller has to promise what the
//! core asks for.
#![allow(unsafe_code)]

mod address_space;

use std::ops::Range;
use std::ptr::NonNull;

use urxe_stack::memory::{
    Access, Advice, AdviseError, AdviseRange, MapError, Mr, Piece, RegMrError,
};

pub use self::address_space::AddressSpace;
use super::{FastRegion, region};
use crate::pd::ProtectionDomain;

/// Makes `len` bytes from `offset` of a region on present.
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

/// A registration of memory that the program owns, made by [`ProtectionDomain::register`]. Dropping
/// it takes the bindings of [windows](crate::MemoryWindow) to it away and deregisters, after which
/// no byte of the memory moves any more.
pub struct ForeignRegion {
    pd: ProtectionDomain,
    mr: Mr,
    /// Where it is in this process: exposed, and no pointer, for which threads would have to be
    /// answered for.
    addr: usize,
}

impl ProtectionDomain {
    /// Registers `len` bytes at `addr` that somebody else owns (`ibv_reg_mr`). Peers and work
    /// requests name them by addresses from `iova` on, which has the same offset in a page as
    /// `addr`; `addr` itself is the usual choice.
    ///
    /// Prefer [`allocate`](Self::allocate), which is safe.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # use urxe::{Access, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// let counters: Vec<AtomicU64> = (0..512).map(AtomicU64::new).collect();
    /// let addr = NonNull::from(counters.as_slice()).cast::<u8>();
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    /// // SAFETY: the region goes before the counters, which any thread may write at any time.
    /// let region = unsafe { pd.register(addr, 4096, addr.as_ptr() as u64, rights) }?;
    /// assert_eq!(region.remote().len, 4096);
    /// drop(region);
    /// assert_eq!(counters[5].load(Ordering::Acquire), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RegMrError`]: what was wrong, what was given, what is allowed.
    ///
    /// # Safety
    /// From this call until the returned value was dropped (for ever if it is leaked):
    /// * `[addr, addr + len)` stays mapped, readable, and with [`Access::LOCAL_WRITE`] writable.
    ///   With [`Access::ON_DEMAND`] pages may come and go. Where the system allows no helper
    ///   process for atomic operations (a filter of system calls, valgrind), those and ATOMIC
    ///   WRITEs are instructions on a page that was just found there: if it goes between the two,
    ///   the process ends by SIGSEGV or SIGBUS.
    /// * What is there may be read by anyone who has the key, and with `LOCAL_WRITE` be overwritten
    ///   at any time, with any bytes, by another thread: no value lives there for which some bytes
    ///   are invalid.
    /// * No `&mut` to any of it is used, and with `LOCAL_WRITE` no `&` either, except to atomics or
    ///   inside an `UnsafeCell` whose users expect it. The program reads and writes it by atomic or
    ///   volatile accesses, or when it knows that no peer and no work request can touch it.
    pub unsafe fn register(
        &self,
        addr: NonNull<u8>,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<ForeignRegion, RegMrError> {
        let memory = self.device().core().memory();
        // SAFETY: the caller's promise is what is asked for here: the region is registered until
        // `ForeignRegion::drop`.
        let mr = unsafe { memory.register(self.memory_id(), addr.as_ptr(), len, iova, access) }?;
        Ok(ForeignRegion { pd: self.clone(), mr, addr: addr.as_ptr().expose_provenance() })
    }
}

impl ForeignRegion {
    /// Makes `len` bytes from `offset` on present (`ibv_advise_mr`), as
    /// [`MemoryRegion::prefetch`](super::MemoryRegion::prefetch) does. Only for a region with
    /// [`Access::ON_DEMAND`].
    ///
    /// # Errors
    /// [`AdviseError`]; EFAULT where nothing is mapped.
    pub fn prefetch(&self, offset: usize, len: usize) -> Result<(), AdviseError> {
        prefetch(&self.pd, &self.mr, offset, len)
    }
}

region!(ForeignRegion);

impl Drop for ForeignRegion {
    fn drop(&mut self) {
        // The program may free the memory next, so unlike a region of its own it cannot stay until
        // its windows are gone.
        self.pd.revoke(self.mr.lkey);
    }
}

impl FastRegion {
    /// Maps parts of memory that somebody else owns, one after the other, as
    /// [`map_parts`](Self::map_parts) does with memory of regions. Faults it in. Peers can be let
    /// write if all of the regions have [`Access::LOCAL_WRITE`].
    ///
    /// # Errors
    /// As [`map`](Self::map), and memory that is not there; the former mapping stays.
    ///
    /// # Safety
    /// What [`register`](ProtectionDomain::register) asks for holds of every part until this region
    /// was dropped, or was mapped and registered anew: also when the [`ForeignRegion`] is dropped
    /// before, and of its pages also if it is on demand.
    pub unsafe fn map_foreign(
        &mut self,
        parts: &[(&ForeignRegion, Range<usize>)],
        iova: u64,
    ) -> Result<(), MapError> {
        let mut pieces = Vec::with_capacity(parts.len());
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
        self.map_with(iova, pieces.iter().map(|piece| piece.len).sum(), |memory, key, page| {
            // SAFETY: the caller's promise.
            unsafe { memory.map_fast(key, &pieces, page, iova, writable) }
        })
    }
}
