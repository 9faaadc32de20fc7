//! Reregistration (`ibv_rereg_mr`): a new translation, domain or access of a region that keeps its
//! keys.

use super::error::{RegMrError, ReregMrError};
use super::layout::{Layout, Region};
use super::slot::SlotContent;
use super::table::{check_access, check_range, describe, populate};
use super::{Access, Buffer, Memory, Mr, PdId, persistence};
use std::ops::Range;
use urxe_types::sync::Arc;
use urxe_wire::Lkey;

/// A new translation of a region.
#[derive(Clone, Copy, Debug)]
pub struct Translation {
    /// Address of the first byte in this process.
    pub addr: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// First address for work requests and peers.
    pub iova: u64,
}

/// The changes of a region (`enum ibv_rereg_mr_flags`); at least one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// The new translation.
    pub translation: Option<Translation>,
    /// The new protection domain.
    pub pd: Option<PdId>,
    /// The new access flags.
    pub access: Option<Access>,
}

impl Memory {
    /// Changes an ordinary region, which keeps its keys. Accesses during the call reach the old
    /// region, the new one, or, for a moment, none. On return, no access by the old terms is in
    /// progress. The calling thread must not hold a pin.
    ///
    /// # Errors
    /// [`ReregMrError`]; the region is unchanged.
    ///
    /// # Safety
    /// The requirements of [`register`](Self::register) hold with the resulting access flags. They
    /// hold for the new translation, if one is given, from this call on, and for the old one until
    /// this call returns.
    pub unsafe fn reregister(&self, lkey: Lkey, change: &Change) -> Result<Mr, ReregMrError> {
        self.rereg(lkey, change, None)
    }

    /// Changes a region whose memory the table keeps alive
    /// ([`register_buffer`](Self::register_buffer)). `place` is another buffer, a range of its
    /// bytes, and their I/O virtual address. The table releases the former buffer.
    ///
    /// # Errors
    /// [`ReregMrError`], also for a region of other memory; the region is unchanged.
    pub fn reregister_buffer(
        &self,
        lkey: Lkey,
        place: Option<(&Arc<Buffer>, Range<usize>, u64)>,
        pd: Option<PdId>,
        access: Option<Access>,
    ) -> Result<Mr, ReregMrError> {
        let mut change = Change { translation: None, pd, access };
        let mut buffer = None;
        if let Some((given, Range { start, end }, iova)) = place {
            if start > end || end > given.len() {
                return Err(RegMrError::OutsideBuffer { start, end, len: given.len() }.into());
            }
            let addr = given.addr().wrapping_add(start);
            change.translation = Some(Translation { addr, len: end - start, iova });
            buffer = Some(given);
        }
        self.rereg(lkey, &change, Some(buffer))
    }

    /// Changes a region. `owned` means that the table keeps the memory of the region, and holds the
    /// new buffer if there is one.
    fn rereg(
        &self,
        lkey: Lkey,
        change: &Change,
        owned: Option<Option<&Arc<Buffer>>>,
    ) -> Result<Mr, ReregMrError> {
        if change.translation.is_none() && change.pd.is_none() && change.access.is_none() {
            return Err(ReregMrError::Nothing);
        }
        let unknown = ReregMrError::UnknownKey { lkey };
        let slot = self.slot(self.index(lkey.0)).ok_or(unknown)?;
        let mut content = slot.content();
        let known = slot.answers_to(lkey.0);
        let region = match &mut *content {
            SlotContent::Region(region) if known => region,
            SlotContent::Fast(_) if known => return Err(ReregMrError::FastRegistration { lkey }),
            _ => return Err(unknown),
        };
        if region.dm.is_some() || (owned.is_some() && region.kept.is_none()) {
            return Err(ReregMrError::OtherMemory { lkey });
        }
        if slot.windows() != 0 {
            return Err(ReregMrError::Busy { lkey, windows: slot.windows() });
        }
        let former = slot.region();
        let of = match &change.translation {
            Some(_) => owned.flatten(),
            None => region.kept.as_ref(),
        };
        let next = self.changed(&former, change, of.is_some_and(|buffer| buffer.is_checked()))?;
        let kept = match (&change.translation, owned.flatten()) {
            (Some(_), buffer) => std::mem::replace(&mut region.kept, buffer.cloned()),
            (None, _) => None,
        };
        if next.pd != former.pd {
            self.move_to_pd(former.pd, next.pd);
        }
        slot.unpublish_and_drain(lkey.0);
        slot.publish(&next, lkey.0);
        drop(content);
        drop(kept); // may unmap
        Ok(describe(lkey, &next))
    }

    /// Returns the new terms of the region; nothing is changed yet. `may_shrink`: pages of its
    /// buffer may vanish, whatever the access flags say.
    fn changed(
        &self,
        former: &Region,
        change: &Change,
        may_shrink: bool,
    ) -> Result<Region, ReregMrError> {
        let access = check_access(change.access.unwrap_or(former.access))?;
        let pd = change.pd.unwrap_or(former.pd);
        let zero_based = access.contains(Access::ZERO_BASED);
        let checked = may_shrink || self.is_checked(access);
        let mut next = Region { pd, access, checked, ..*former };
        if let Some(Translation { addr, len, iova }) = change.translation {
            if former.layout == Layout::Whole {
                // A key to the whole address space never becomes a key to anything else.
                return Err(ReregMrError::WholeAddressSpace);
            }
            let start = if zero_based { 0 } else { iova };
            self.check_len(len)?;
            check_range(addr.addr(), len, start, !zero_based)?;
            next = Region { base: addr, start, len: len as u64, layout: Layout::Flat, ..next };
        } else {
            if access.contains(Access::ZERO_BASED) != former.access.contains(Access::ZERO_BASED) {
                return Err(ReregMrError::ZeroBasedWithoutTranslation { given: access });
            }
            if former.layout == Layout::Whole && !access.contains(Access::ON_DEMAND) {
                return Err(RegMrError::NotOnDemand.into());
            }
        }
        // SAFETY: ordinary regions have no page list.
        unsafe { persistence::check_region(&next) }?;
        if !access.contains(Access::ON_DEMAND) {
            // The registration ensured that the length fits.
            populate(next.base, next.len as usize, access.contains(Access::LOCAL_WRITE))?;
        }
        Ok(next)
    }
}
