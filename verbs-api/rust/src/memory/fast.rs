//! Fast registration: regions that work requests register and invalidate.

use std::fmt;
use std::ops::{Range, RangeBounds};

use urxe_stack::allocate;
use urxe_stack::memory::{AllocMrError, MapError, Memory, inc_rkey};
use urxe_wire::{Lkey, Rkey};

use super::{MemoryRegion, RegionSlice, RemoteRegion, SliceError};
use crate::pd::ProtectionDomain;

/// The page size of fast-registration regions, in bytes.
const PAGE: usize = 4096;

/// A fast-registration region (`ib_alloc_mr`): a key that work requests register and invalidate.
///
/// 1. [`map`](Self::map) selects the memory of the region.
/// 2. [`SendRequest::register`](crate::SendRequest::register) makes the memory accessible.
/// 3. [`SendRequest::invalidate`](crate::SendRequest::invalidate), or a SEND with invalidate of
///    the peer, ends the access.
///
/// A program can thus grant access for a single transfer, at the cost of a work request. The memory
/// stays mapped while the region may use it, even if its [`MemoryRegion`] is dropped. Dropping the
/// fast-registration region unbinds all [windows](crate::MemoryWindow) of it, invalidates its key
/// and waits for accesses in progress.
///
/// ```
/// use urxe::{Access, AllocMrError, FastRegion, MapError, SendRequest, WcStatus};
/// # use urxe::{ConnectOptions, sim::Fabric};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// # let copy = peer_pd.allocate(64, Access::LOCAL_WRITE)?;
/// let buffer = pd.allocate(3 * 4096, Access::LOCAL_WRITE)?;
/// buffer.write(4096, b"for you")?;
/// let mut region: FastRegion = pd.alloc_fast_region(2)?;
/// region.map(&buffer, 4096..4160, 0x10_0000)?;
/// qp.post_send(&SendRequest::register(&region, Access::REMOTE_READ).signaled())?;
/// let _registered = cq.wait_one(None)?;
///
/// let there = region.remote();
/// peer.post_send(&SendRequest::read(copy.slice(..)?, there).signaled())?;
/// let _read = peer_cq.wait_one(None)?;
/// assert_eq!(copy.read_vec(0, 7)?, b"for you");
///
/// qp.post_send(&SendRequest::invalidate(there.rkey).signaled())?;
/// let _invalidated = cq.wait_one(None)?;
/// assert!(!region.is_valid());
///
/// let error: MapError = region.map(&buffer, 0..3 * 4096, 0).unwrap_err();
/// assert_eq!(error, MapError::TooManyPages { given: 3, allowed: 2 });
/// let error: AllocMrError = pd.alloc_fast_region(0).unwrap_err();
/// assert!(matches!(error, AllocMrError::Pages { given: 0, .. }));
/// # Ok(())
/// # }
/// ```
pub struct FastRegion {
    pd: ProtectionDomain,
    key: Rkey,
    start: u64,
    len: usize,
}

impl ProtectionDomain {
    /// Allocates a fast-registration region of up to `max_pages` pages of 4 KiB (`ib_alloc_mr`).
    ///
    /// # Errors
    /// Fails with [`AllocMrError`] if `max_pages` is 0 or exceeds the limit of the device, or if
    /// the device has no free region.
    pub fn alloc_fast_region(&self, max_pages: u32) -> Result<FastRegion, AllocMrError> {
        let key = self.device().core().memory().alloc_fast(self.memory_id(), max_pages)?;
        Ok(FastRegion { pd: self.clone(), key, start: 0, len: 0 })
    }
}

impl FastRegion {
    /// Maps the bytes `range` of a region's memory (`ib_map_mr_sg`), in pages of 4 KiB.
    ///
    /// The addresses of the mapping start at `iova`, whose offset in its page must equal that of
    /// the first byte. A current registration stays valid: the mapping applies to the next
    /// registration, which has the next key.
    ///
    /// # Errors
    /// Fails with [`MapError`] in these cases, and keeps the former mapping:
    /// * The range needs more pages than the region has, is empty, or exceeds the memory.
    /// * `iova` has another offset in its page than the first byte.
    /// * The memory is that of a file that may shrink.
    pub fn map(
        &mut self,
        from: &MemoryRegion,
        range: Range<usize>,
        iova: u64,
    ) -> Result<(), MapError> {
        self.map_parts(&[(from, range)], iova)
    }

    /// Maps parts of the memory of several regions, in this order. Every part except the first
    /// starts at a page of 4 KiB, and every part except the last ends at one.
    ///
    /// # Errors
    /// Fails as [`map`](Self::map) does, and if there is a gap between two parts.
    pub fn map_parts(
        &mut self,
        parts: &[(&MemoryRegion, Range<usize>)],
        iova: u64,
    ) -> Result<(), MapError> {
        let buffers = parts.iter().map(|(region, range)| (&region.buffer, range.clone()));
        let buffers = allocate::collected(buffers)?;
        // Ranges beyond their regions may have any length, and are refused below.
        let add = |sum: usize, (_, range): &(_, Range<usize>)| sum.saturating_add(range.len());
        let len = parts.iter().fold(0, add);
        self.map_with(iova, len, |memory, key, page| {
            memory.map_fast_buffers(key, &buffers, page, iova)
        })
    }

    /// Calls `map` with the key and the page size, then records the mapping of `len` bytes at
    /// `iova`.
    pub(super) fn map_with(
        &mut self,
        iova: u64,
        len: usize,
        map: impl FnOnce(&Memory, Rkey, usize) -> Result<(), MapError>,
    ) -> Result<(), MapError> {
        map(self.pd.device().core().memory(), self.key, PAGE)?;
        (self.start, self.len) = (iova, len);
        self.key = inc_rkey(self.key);
        Ok(())
    }

    /// Changes the key of the next registration, for the same memory. A peer cannot use the former
    /// key for the new registration. Only the low 8 bits change, so each key returns after 256
    /// changes.
    pub fn renew_key(&mut self) {
        self.key = inc_rkey(self.key);
    }

    /// Returns the protection domain of the region.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the key of the next registration, or of the last one if no mapping followed it.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.key
    }

    /// Returns the same key for requests of the owner. They read the registered memory, and write
    /// it if [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE) is granted.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        Lkey(self.key.0)
    }

    /// Returns a slice of the last mapping, for a work request that follows the registration.
    /// `range` counts bytes from 0.
    ///
    /// # Errors
    /// Fails with [`SliceError`] if the range exceeds the mapping, or if the slice is longer than
    /// 2^32 - 1 bytes.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<RegionSlice<'_>, SliceError> {
        RegionSlice::inside(&self.pd, self.start, self.len, self.lkey(), range)
    }

    /// Returns the number of pages that can be mapped.
    #[must_use]
    pub fn max_pages(&self) -> u32 {
        self.query().0
    }

    /// Returns whether the region is registered and not invalidated since.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.query().1
    }

    fn query(&self) -> (u32, bool) {
        // The region exists as long as its handle, so the query cannot fail.
        self.pd.device().core().memory().query_fast(self.key).unwrap_or_default()
    }

    /// Returns the address, length and key that a peer needs after the registration.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { addr: self.start, len: self.len as u64, rkey: self.key }
    }
}

impl Drop for FastRegion {
    fn drop(&mut self) {
        // The program may free memory with another owner after this call (`map_foreign`). So the
        // region cannot outlive its handle until its windows are unbound.
        self.pd.revoke(Lkey(self.key.0));
    }
}

impl fmt::Debug for FastRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastRegion")
            .field("remote", &self.remote())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
