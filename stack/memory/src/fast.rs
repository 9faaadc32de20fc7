//! Fast registration (IBTA vol. 1, 10.6.4, "memory management extensions"). A region is allocated
//! without memory. A work request on the send queue makes the region valid for pages that the
//! program mapped to it, and another work request invalidates the region.
//!
//! Mapping writes a second list beside the active one. A program may therefore map while the region
//! is valid, for example before it posts the invalidation and the next registration together. The
//! upper 24 bits of the key belong to the region for its life. The program chooses the low 8 bits
//! with each registration, and a key with other low bits is stale.
//!
//! Sources: `ib_alloc_mr`, `ib_map_mr_sg`, `rxe_mr.c` (`rxe_reg_fast_mr`, `rxe_invalidate_mr`).

use super::checked_copy::{self, PopulateError};
use super::error::{AllocMrError, FastRegError, MapError};
use super::keys::is_same_object;
use super::layout::{AccessScope, Region};
use super::pages::{PageList, Piece};
use super::slot::{FastRegion, SlotContent};
use super::table::Kind;
use super::{Access, Buffer, Memory, PdId, persistence, window};
use std::ops::Range;
use urxe_types::allocate;
use urxe_types::sync::Arc;
use urxe_wire::Rkey;

/// Access flags that a registration may grant.
const ALLOWED: Access = window::ALLOWED.union(Access::MW_BIND).union(Access::RELAXED_ORDERING);

impl Memory {
    /// Allocates an invalid fast-registration region of up to `max_pages` pages. Returns the first
    /// key, which is the key of the owner and of the peers. [`deregister`](Self::deregister) ends
    /// the region.
    ///
    /// # Errors
    /// [`AllocMrError`].
    pub fn alloc_fast(&self, pd: PdId, max_pages: u32) -> Result<Rkey, AllocMrError> {
        let allowed = self.limits().max_pages;
        if max_pages == 0 || max_pages > allowed {
            return Err(AllocMrError::Pages { given: max_pages, allowed });
        }
        let list = || PageList::new(max_pages as usize);
        let (active, staged) = (list()?, list()?);
        let (key, slot) = self.allocate_slot(pd, Kind::Fast)?;
        let fast = FastRegion { pd, key, valid: false, active, staged };
        slot.set(&mut slot.content(), SlotContent::Fast(Box::new(fast)));
        Ok(Rkey(key))
    }

    /// Maps parts of buffers, one after another, to the fast-registration region `key`; the low 8
    /// bits of the key are ignored. After a registration, work requests and peers name the bytes by
    /// addresses from `iova` on. The buffers stay mapped while the region may use them.
    ///
    /// # Errors
    /// [`MapError`]; the former mapping stays.
    pub fn map_fast_buffers(
        &self,
        key: Rkey,
        parts: &[(&Arc<Buffer>, Range<usize>)],
        page_size: usize,
        iova: u64,
    ) -> Result<(), MapError> {
        let mut pieces = allocate::vec(parts.len())?;
        for (index, (buffer, range)) in parts.iter().enumerate() {
            let Range { start, end } = *range;
            if start > end || end > buffer.len() {
                return Err(MapError::OutsideBuffer { index, start, end, len: buffer.len() });
            }
            if buffer.is_checked() {
                return Err(MapError::MayShrink { index });
            }
            pieces.push(Piece { addr: buffer.addr().wrapping_add(start), len: end - start });
        }
        let kept = allocate::collected(parts.iter().map(|(buffer, _)| Arc::clone(buffer)))?;
        self.map_list(key, &pieces, page_size, iova, true, kept)
    }

    /// Maps memory for which the caller is responsible, as
    /// [`map_fast_buffers`](Self::map_fast_buffers) maps buffers. Faults the memory in, for writing
    /// if `writable`. A registration with [`Access::LOCAL_WRITE`] needs writable memory.
    ///
    /// # Errors
    /// [`MapError`]; the former mapping stays.
    ///
    /// # Safety
    /// The requirements of [`register`](Self::register) hold for every piece, with `LOCAL_WRITE` if
    /// `writable`. They hold until the region is deregistered, or is mapped and registered again.
    pub unsafe fn map_fast(
        &self,
        key: Rkey,
        pieces: &[Piece],
        page_size: usize,
        iova: u64,
        writable: bool,
    ) -> Result<(), MapError> {
        for Piece { addr, len } in pieces.iter().copied().filter(|piece| piece.len != 0) {
            let end = addr.addr().checked_add(len);
            if end
                .is_none_or(|end| end.checked_next_multiple_of(checked_copy::page_size()).is_none())
            {
                return Err(MapError::Wraps { addr: addr.addr(), len });
            }
            checked_copy::make_present(addr, len, writable).map_err(|error| match error {
                PopulateError::NotMapped => MapError::NotMapped { addr: addr.addr(), len },
                PopulateError::NotAccessible => {
                    MapError::NotAccessible { addr: addr.addr(), len, write: writable }
                }
            })?;
        }
        self.map_list(key, pieces, page_size, iova, writable, Vec::new())
    }

    fn map_list(
        &self,
        key: Rkey,
        pieces: &[Piece],
        page_size: usize,
        iova: u64,
        writable: bool,
        kept: Vec<Arc<Buffer>>,
    ) -> Result<(), MapError> {
        let slot = self.slot(self.index(key.0)).ok_or(MapError::UnknownKey { key })?;
        match &mut *slot.content() {
            SlotContent::Fast(fast) if is_same_object(fast.key, key.0) => {
                fast.staged.map(pieces, page_size, iova, writable, kept).map(drop)
            }
            _ => Err(MapError::UnknownKey { key }),
        }
    }

    /// Makes the fast-registration region of `key` valid, as a REG_MR work request on a queue pair
    /// of `pd` does. From now on exactly this key is valid, for the memory that was mapped last.
    /// The calling thread must not hold a pin.
    ///
    /// # Errors
    /// [`FastRegError`]; nothing changed.
    pub fn register_fast(&self, key: Rkey, access: Access, pd: PdId) -> Result<(), FastRegError> {
        let unknown = FastRegError::UnknownKey { key };
        let slot = self.slot(self.index(key.0)).ok_or(unknown)?;
        let mut content = slot.content();
        let fast = match &mut *content {
            SlotContent::Fast(fast) if is_same_object(fast.key, key.0) => fast,
            _ => return Err(unknown),
        };
        if fast.pd != pd {
            return Err(FastRegError::WrongPd { key, given: pd, owner: fast.pd });
        }
        if fast.valid {
            return Err(FastRegError::NotFree { key });
        }
        let mapping = match fast.staged.mapping {
            Some(mapping) => mapping,
            // The region is registered again for the same pages.
            None => fast.active.mapping.ok_or(FastRegError::NotMapped { key })?,
        };
        let allowed =
            if mapping.writable { ALLOWED } else { ALLOWED.difference(Access::LOCAL_WRITE) };
        let changes = access.intersects(Access::REMOTE_CHANGE);
        if !allowed.contains(access) || (changes && !access.contains(Access::LOCAL_WRITE)) {
            return Err(FastRegError::Access { given: access, allowed });
        }
        let list = if fast.staged.mapping.is_some() { &fast.staged } else { &fast.active };
        let start = if access.contains(Access::ZERO_BASED) { 0 } else { mapping.start };
        let region = Region {
            base: list.base(),
            start,
            len: mapping.len,
            pd,
            access,
            layout: mapping.layout(),
            scope: AccessScope::All,
            checked: self.is_checked(access),
        };
        // SAFETY: lists are changed and freed under the object's lock, which is held.
        unsafe { persistence::check_region(&region) }?;
        // From here on nothing fails. The entries of a list do not move when the list changes its
        // place.
        if fast.staged.mapping.is_some() {
            std::mem::swap(&mut fast.active, &mut fast.staged);
            fast.staged.mapping = None;
        }
        fast.valid = true;
        fast.key = key.0;
        slot.publish(&region, key.0);
        Ok(())
    }

    /// Returns the maximum number of pages of the fast-registration region of `key`, and whether
    /// the region is valid. Returns `None` if there is no such region. The low 8 bits of the key
    /// are ignored.
    #[must_use]
    pub fn query_fast(&self, key: Rkey) -> Option<(u32, bool)> {
        match &*self.slot(self.index(key.0))?.content() {
            SlotContent::Fast(fast) if is_same_object(fast.key, key.0) => {
                Some((fast.active.capacity() as u32, fast.valid))
            }
            _ => None,
        }
    }
}
