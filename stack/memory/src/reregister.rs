//! Reregistration (`ibv_rereg_mr`): another place, domain or access for a region that keeps its
//! keys.

use super::error::{RegMrError, ReregMrError};
use super::layout::{Layout, Region};
use super::slot::SlotContent;
use super::table::{check_access, check_range, describe, populate};
use super::{Access, Buffer, Memory, Mr, PdId, persistence};
use std::ops::Range;
use urxe_types::sync::Arc;
use urxe_wire::Lkey;

/// Another place for a region.
#[derive(Clone, Copy, Debug)]
pub struct Translation {
    /// First byte in this process.
    pub addr: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// First address, as work requests and peers will name it.
    pub iova: u64,
}

/// What of a region changes (`enum ibv_rereg_mr_flags`); at least one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Where it is.
    pub translation: Option<Translation>,
    /// Its protection domain.
    pub pd: Option<PdId>,
    /// What it grants.
    pub access: Option<Access>,
}

impl Memory {
    /// Changes an ordinary region, which keeps its keys. Accesses meanwhile find the old region,
    /// the new one, or, for a moment, none. When this returns, no byte moves by the old terms any
    /// more. The calling thread holds no pin.
    ///
    /// # Errors
    /// [`ReregMrError`]; the region is as it was.
    ///
    /// # Safety
    /// What [`register`](Self::register) asks for holds for the new place, if one is given, from
    /// this call on, for the old one until this call returned, and for the access rights that
    /// result.
    pub unsafe fn reregister(&self, lkey: Lkey, change: &Change) -> Result<Mr, ReregMrError> {
        self.rereg(lkey, change, None)
    }

    /// The same for a region whose memory the table keeps alive
    /// ([`register_buffer`](Self::register_buffer)): `place` is another buffer, bytes of it, and
    /// their I/O virtual address. The former buffer is let go of.
    ///
    /// # Errors
    /// [`ReregMrError`], also for a region of other memory; the region is as it was.
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

    /// `owned`: the region's memory is one that the table keeps, and will be this, if that is
    /// given.
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
        let low_byte = lkey.0 as u8;
        let slot = self.slot(self.index(lkey.0)).ok_or(unknown)?;
        let mut content = slot.content();
        let known = slot.answers_to(low_byte);
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
        let next = self.changed(&former, change, owned.flatten())?;
        let kept = match (&change.translation, owned.flatten()) {
            (Some(_), buffer) => std::mem::replace(&mut region.kept, buffer.cloned()),
            (None, _) => None,
        };
        if next.pd != former.pd {
            self.move_to_pd(former.pd, next.pd);
        }
        slot.unpublish_and_drain(low_byte);
        slot.publish(&next, low_byte);
        drop(content);
        drop(kept); // may unmap
        Ok(describe(lkey, &next))
    }

    /// What the region will be; nothing is changed yet.
    fn changed(
        &self,
        former: &Region,
        change: &Change,
        buffer: Option<&Arc<Buffer>>,
    ) -> Result<Region, ReregMrError> {
        let access = check_access(change.access.unwrap_or(former.access))?;
        let pd = change.pd.unwrap_or(former.pd);
        let zero_based = access.contains(Access::ZERO_BASED);
        let mut next = Region { pd, access, ..*former };
        if let Some(Translation { addr, len, iova }) = change.translation {
            let start = if zero_based { 0 } else { iova };
            self.check_len(len)?;
            check_range(addr.addr(), len, start, !zero_based)?;
            let checked =
                self.is_checked(access) || buffer.is_some_and(|buffer| buffer.is_checked());
            next = Region {
                base: addr,
                start,
                len: len as u64,
                layout: Layout::Flat,
                checked,
                ..next
            };
        } else {
            if access.contains(Access::ZERO_BASED) != former.access.contains(Access::ZERO_BASED) {
                return Err(ReregMrError::ZeroBasedWithoutTranslation { given: access });
            }
            let by_access = |access| self.is_checked(access);
            // What is checked for another reason than its flags stays so.
            next.checked = by_access(access) || (former.checked && !by_access(former.access));
            if former.layout == Layout::Whole && !access.contains(Access::ON_DEMAND) {
                return Err(RegMrError::NotOnDemand.into());
            }
        }
        // SAFETY: ordinary regions have no page list.
        unsafe { persistence::check_region(&next) }?;
        if !access.contains(Access::ON_DEMAND) {
            // Registration made sure that the length fits.
            populate(next.base, next.len as usize, access.contains(Access::LOCAL_WRITE))?;
        }
        Ok(next)
    }
}
