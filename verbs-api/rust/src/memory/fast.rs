//! Fast registration: regions that a work request makes valid, and another, or the peer, makes free
//! again.

use std::fmt;
use std::ops::{Range, RangeBounds};

use urxe_stack::memory::{AllocMrError, MapError, Memory, inc_rkey};
use urxe_wire::{Lkey, Rkey};

use super::{MemoryRegion, RegionSlice, RemoteRegion, SliceError};
use crate::pd::ProtectionDomain;

/// What is mapped in a fast-registration region has pages of this size, in bytes.
const PAGE: usize = 4096;

/// A fast-registration region (`ib_alloc_mr`): a key without memory. [`map`](Self::map) gives it
/// some, a [`SendRequest::register`](crate::SendRequest::register) makes it valid, and a
/// [`SendRequest::invalidate`](crate::SendRequest::invalidate), or a peer's SEND with invalidate,
/// makes it free again. So a peer's access can be granted and taken back for each transfer, at the
/// cost of a work request.
///
/// The mapped memory stays mapped as long as the region may use it, whether or not the
/// [`MemoryRegion`] that it was taken from is still there. Dropping the region takes its key away
/// and waits for accesses in progress.
///
/// ```
/// # use urxe::{Access, ConnectOptions, SendRequest, WcStatus, sim::Fabric};
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
/// let mut region = pd.alloc_fast_region(2)?;
/// region.map(&buffer, 4096..4160, 0x10_0000)?;
/// qp.post_send(&SendRequest::register(&region, Access::REMOTE_READ).signaled())?;
/// assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
///
/// let there = region.remote();
/// peer.post_send(&SendRequest::read(copy.slice(..)?, there).signaled())?;
/// assert_eq!(peer_cq.wait_one(None)?.status, WcStatus::Success);
/// assert_eq!(copy.read_vec(0, 7)?, b"for you");
///
/// qp.post_send(&SendRequest::invalidate(there.rkey).signaled())?;
/// assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
/// assert!(!region.is_valid());
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
    /// [`AllocMrError`]: no pages or more than the device allows, too many regions.
    pub fn alloc_fast_region(&self, max_pages: u32) -> Result<FastRegion, AllocMrError> {
        let key = self.device().core().memory().alloc_fast(self.memory_id(), max_pages)?;
        Ok(FastRegion { pd: self.clone(), key, start: 0, len: 0 })
    }
}

impl FastRegion {
    /// Maps bytes `range` of a region's memory (`ib_map_mr_sg`), in pages of 4 KiB. Peers will name
    /// them by addresses from `iova` on, which has the offset in a page that `range` starts at.
    /// What is registered now stays so: the mapping counts from the next registration on, which
    /// gets the next key.
    ///
    /// # Errors
    /// [`MapError`]: more pages than the region was made for, a range that is not inside or empty,
    /// an `iova` with another offset in its page, memory of a file that may shrink. The former
    /// mapping stays.
    pub fn map(
        &mut self,
        from: &MemoryRegion,
        range: Range<usize>,
        iova: u64,
    ) -> Result<(), MapError> {
        self.map_parts(&[(from, range)], iova)
    }

    /// Maps parts of several regions' memory, one after the other: every one but the first begins,
    /// and every one but the last ends, where a page of 4 KiB does.
    ///
    /// # Errors
    /// As [`map`](Self::map), and parts with a gap between them.
    pub fn map_parts(
        &mut self,
        parts: &[(&MemoryRegion, Range<usize>)],
        iova: u64,
    ) -> Result<(), MapError> {
        let buffers: Vec<_> =
            parts.iter().map(|(region, range)| (&region.buffer, range.clone())).collect();
        let len = parts.iter().map(|(_, range)| range.len()).sum();
        self.map_with(iova, len, |memory, key, page| {
            memory.map_fast_buffers(key, &buffers, page, iova)
        })
    }

    /// Takes over what `map` maps to the key with pages of a size: `len` bytes from `iova` on.
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

    /// Lets the next registration have another key, for the same memory: what a peer still knows of
    /// the former one is worth nothing then.
    pub fn renew_key(&mut self) {
        self.key = inc_rkey(self.key);
    }

    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The key that the next registration gives it, or the last one gave it.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.key
    }

    /// The same key for the owner: own work requests take bytes from what is registered, and with
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE) place bytes there.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        Lkey(self.key.0)
    }

    /// A part of what was mapped last, for a work request behind the one that registers it. `range`
    /// counts bytes from 0.
    ///
    /// # Errors
    /// [`SliceError`] if it is not inside, or longer than a message can be (2^32 - 1 bytes).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<RegionSlice<'_>, SliceError> {
        RegionSlice::inside(self.start, self.len, self.lkey(), range)
    }

    /// How many pages can be mapped.
    #[must_use]
    pub fn max_pages(&self) -> u32 {
        self.query().0
    }

    /// Whether it is valid now: registered, and not invalidated since.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.query().1
    }

    fn query(&self) -> (u32, bool) {
        // It lives as long as this handle, so there is always an answer.
        self.pd.device().core().memory().query_fast(self.key).unwrap_or_default()
    }

    /// What a peer needs to reach the mapped memory, once it is registered: address, length, key.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { addr: self.start, len: self.len as u64, rkey: self.key }
    }
}

impl Drop for FastRegion {
    fn drop(&mut self) {
        self.pd.deregister(Lkey(self.key.0));
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
