//! Memory windows (IBTA vol. 1, 10.6.7): keys for a part of a region, bound and unbound by work
//! requests.
//!
//! A bound window has its own copy of the location of its bytes. The copy stays correct, because a
//! region with windows can be neither deregistered, nor reregistered, nor invalidated. Unbinding
//! unpublishes the window and waits for its pins.
//!
//! | | type 1 | type 2B |
//! |---|---|---|
//! | used through | any queue pair of its domain | the queue pair that bound it |
//! | bound again | at any time; the former binding ends | only after invalidation |
//! | unbound | by a bind of zero bytes | by invalidation, locally or by the peer |
//!
//! Sources: `rxe_mw.c`; C10-72 to C10-75, o10-36.2.2, o10-37.2.26, o10-37.2.30, o10-37.2.40.

use super::error::{AllocMwError, BindError, DeallocMwError, DeregMrError};
use super::keys::is_same_object;
use super::layout::{AccessScope, Layout, Region};
use super::slot::{Bound, Slot, SlotContent, WindowContent};
use super::table::Kind;
use super::{Access, Accessor, Bind, Memory, MwType, PdId, persistence};
use urxe_types::sync::yield_now;
use urxe_wire::{Lkey, Qpn, Rkey};

/// The access flags of a window, and `ZERO_BASED`. `LOCAL_WRITE` has no effect, and `rdma_rxe`
/// accepts it as well.
pub(super) const ALLOWED: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT)
    .union(Access::ZERO_BASED);

impl Memory {
    /// Allocates an unbound window, and returns its key (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`AllocMwError`].
    pub fn alloc_mw(&self, pd: PdId, kind: MwType) -> Result<Rkey, AllocMwError> {
        self.alloc_window(pd, kind, false)
    }

    /// Allocates an unbound window for a caller that names the window by a handle. Binds ignore the
    /// low 8 bits of the key. These bits change with each bind, and the handle cannot know whether
    /// earlier binds succeed or are posted at all.
    ///
    /// # Errors
    /// [`AllocMwError`].
    pub fn alloc_mw_by_handle(&self, pd: PdId, kind: MwType) -> Result<Rkey, AllocMwError> {
        self.alloc_window(pd, kind, true)
    }

    fn alloc_window(&self, pd: PdId, kind: MwType, by_handle: bool) -> Result<Rkey, AllocMwError> {
        let (key, slot) = self.allocate_slot(pd, Kind::Window)?;
        let window = WindowContent { kind, pd, key, by_handle, bound: None };
        slot.set(&mut slot.content(), SlotContent::Window(window));
        Ok(Rkey(key))
    }

    /// Deallocates a window, bound or not (`ibv_dealloc_mw`). The low 8 bits of the key are
    /// ignored, because binds change them without the caller's knowledge. On return, no byte moves
    /// through the window. The calling thread must not hold a pin.
    ///
    /// # Errors
    /// [`DeallocMwError`].
    pub fn dealloc_mw(&self, key: Rkey) -> Result<(), DeallocMwError> {
        let unknown = DeallocMwError::UnknownKey { key };
        let index = self.index(key.0);
        let slot = self.slot(index).ok_or(unknown)?;
        let mut content = slot.content();
        let window = match &mut *content {
            SlotContent::Window(window) if is_same_object(window.key, key.0) => window,
            _ => return Err(unknown),
        };
        self.unbind(slot, window);
        let pd = window.pd;
        slot.set(&mut content, SlotContent::Vacant);
        drop(content);
        self.free_slot(index, pd, Kind::Window);
        Ok(())
    }

    /// Binds a window, for a work request of the queue pair `by`, and returns its new key. The
    /// calling thread must not hold a pin.
    ///
    /// # Errors
    /// [`BindError`]; nothing changed.
    pub fn bind(&self, bind: &Bind, by: Accessor) -> Result<Rkey, BindError> {
        // The region and the window are locked one after the other, never both. The window is
        // counted first, so the region stays meanwhile.
        let target = if bind.length == 0 { None } else { Some(self.acquire_target(bind, by)?) };
        let outcome = self.bind_window(bind, by, target);
        if let (Err(_), Some((region, _))) = (outcome, target) {
            self.release_target(region);
        }
        outcome
    }

    /// Binds the window. `target` is the index of the region's key, and the memory of the bound
    /// window.
    fn bind_window(
        &self,
        bind: &Bind,
        by: Accessor,
        target: Option<(u32, Region)>,
    ) -> Result<Rkey, BindError> {
        let key = bind.window;
        let unknown = BindError::UnknownWindow { key };
        let slot = self.slot(self.index(key.0)).ok_or(unknown)?;
        let mut content = slot.content();
        let window = match &mut *content {
            SlotContent::Window(window) if is_same_object(window.key, key.0) => window,
            _ => return Err(unknown),
        };
        if !window.by_handle && window.key != key.0 {
            return Err(unknown);
        }
        let scope = check_window(window, bind, by)?;
        // From here on nothing fails. A type 1 window loses its former binding.
        self.unbind(slot, window);
        // The upper 24 bits belong to the window.
        window.key = key.0 & !0xff | bind.new_rkey.0 & 0xff;
        if let Some((region, stands_for)) = target {
            let qpn = if let AccessScope::PeerOf(qpn) = scope { Some(qpn) } else { None };
            window.bound = Some(Bound { region, qpn });
            slot.publish(&Region { scope, ..stands_for }, window.key);
        }
        Ok(Rkey(window.key))
    }

    /// Checks the region that a bind names, and counts the window. Returns the index of the
    /// region's key, and the memory of the bound window.
    fn acquire_target(&self, bind: &Bind, by: Accessor) -> Result<(u32, Region), BindError> {
        let lkey = bind.region;
        let unknown = BindError::UnknownRegion { lkey };
        let index = self.index(lkey.0);
        let slot = self.slot(index).ok_or(unknown)?;
        let content = slot.content();
        if !matches!(*content, SlotContent::Region(_) | SlotContent::Fast(_))
            || !slot.answers_to(lkey.0)
        {
            return Err(unknown);
        }
        let region = slot.region();
        check_region(&region, bind, by)?;
        let offset = bind.addr - region.start;
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        let (base, layout) = match region.layout {
            Layout::Flat => (region.base.wrapping_add(offset as usize), Layout::Flat),
            // A zero-based address is not an address of the process.
            Layout::Whole if zero_based => {
                (std::ptr::with_exposed_provenance_mut(bind.addr as usize), Layout::Flat)
            }
            Layout::Whole => (region.base, Layout::Whole),
            Layout::Paged { shift, skip } => {
                (region.base, Layout::Paged { shift, skip: skip + offset })
            }
        };
        let mut access = bind.access.difference(Access::LOCAL_WRITE);
        if access.intersects(Access::REMOTE_CHANGE) {
            access |= Access::LOCAL_WRITE;
        }
        let start = if zero_based { 0 } else { bind.addr };
        let stands_for = Region { base, start, len: bind.length, access, layout, ..region };
        let on_demand = region.access & Access::ON_DEMAND;
        // SAFETY: the content is locked, so its list does not change.
        unsafe { persistence::check_region(&Region { access: access | on_demand, ..stands_for }) }?;
        slot.count_window();
        drop(content);
        Ok((index, stands_for))
    }

    fn release_target(&self, region: u32) {
        if let Some(slot) = self.slot(region) {
            slot.uncount_window();
        }
    }

    /// Unbinds a window, if it is bound.
    pub(super) fn unbind(&self, slot: &Slot, window: &mut WindowContent) {
        let Some(bound) = window.bound.take() else { return };
        let was_there = slot.unpublish_and_drain(window.key);
        debug_assert!(was_there, "a bound window answers to its key");
        self.release_target(bound.region);
    }

    /// Ends a registration as [`deregister`](Self::deregister) does, after it has unbound all
    /// windows of the region. An owner can therefore take its memory back even if a peer still has
    /// a key. A bind that happens meanwhile is undone, too.
    ///
    /// # Errors
    /// [`DeregMrError::UnknownKey`].
    pub fn revoke(&self, lkey: Lkey) -> Result<(), DeregMrError> {
        loop {
            match self.deregister(lkey) {
                Err(DeregMrError::Busy { .. }) => {
                    let region = self.index(lkey.0);
                    self.unbind_all(|bound| bound.region == region);
                    // A thread that has counted a window and not yet bound it needs to run.
                    yield_now();
                }
                ended => return ended,
            }
        }
    }

    /// Unbinds all type 2 windows of a queue pair that is being destroyed.
    pub fn unbind_all_of(&self, qpn: Qpn) {
        self.unbind_all(|bound| bound.qpn == Some(qpn));
    }

    fn unbind_all(&self, is_due: impl Fn(&Bound) -> bool) {
        // The lock of the state may be taken under that of a slot, never the other way round. So
        // each index is looked up on its own.
        let mut next = self.next_window(0);
        while let Some(index) = next {
            next = self.next_window(index + 1);
            let Some(slot) = self.slot(index) else { continue };
            if let SlotContent::Window(window) = &mut *slot.content()
                && window.bound.as_ref().is_some_and(&is_due)
            {
                self.unbind(slot, window);
            }
        }
    }
}

/// Returns the users of the window once it is bound.
fn check_window(
    window: &WindowContent,
    bind: &Bind,
    by: Accessor,
) -> Result<AccessScope, BindError> {
    let key = bind.window;
    let unknown = bind.access.difference(ALLOWED);
    if !unknown.is_empty() {
        return Err(BindError::Access { given: bind.access, unknown });
    }
    if window.pd != by.pd {
        return Err(BindError::WindowPd { key, given: by.pd, owner: window.pd });
    }
    match (window.kind, by.qpn) {
        (MwType::Type1, _) if bind.access.contains(Access::ZERO_BASED) => {
            Err(BindError::ZeroBasedType1)
        }
        (MwType::Type1, _) => Ok(AccessScope::Peers),
        (MwType::Type2, None) => Err(BindError::NoQp),
        (MwType::Type2, _) if window.bound.is_some() => Err(BindError::NotFree { key }),
        (MwType::Type2, _) if bind.length == 0 => Err(BindError::EmptyType2),
        (MwType::Type2, Some(qpn)) => Ok(AccessScope::PeerOf(qpn)),
    }
}

fn check_region(region: &Region, bind: &Bind, by: Accessor) -> Result<(), BindError> {
    let lkey = bind.region;
    if region.pd != by.pd {
        return Err(BindError::RegionPd { lkey, given: by.pd, owner: region.pd });
    }
    if !region.access.contains(Access::MW_BIND) {
        return Err(BindError::NeedsMwBind { granted: region.access });
    }
    if region.access.contains(Access::ZERO_BASED) {
        return Err(BindError::ZeroBasedRegion { lkey });
    }
    if bind.access.intersects(Access::REMOTE_CHANGE) && !region.access.contains(Access::LOCAL_WRITE)
    {
        return Err(BindError::NeedsLocalWrite { given: bind.access, granted: region.access });
    }
    if !region.contains(bind.addr, bind.length) {
        let Region { start, len, .. } = *region;
        return Err(BindError::OutOfBounds {
            addr: bind.addr,
            length: bind.length,
            start,
            region_len: len,
        });
    }
    Ok(())
}
