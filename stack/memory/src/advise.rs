//! Prefetching the pages of on-demand regions (`ibv_advise_mr`).

use super::checked_copy::{self, PopulateError};
use super::layout::{AccessScope, Layout};
use super::{Access, Memory, PdId};
use urxe_wire::Lkey;

/// What is advised (`enum ibv_advise_mr_advice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Advice {
    /// Make the pages present for reading.
    Prefetch = 0,
    /// Make them present for writing.
    PrefetchWrite = 1,
    /// Use those that are present already, and fault nothing in. Here, where nothing is translated
    /// ahead, only the checks.
    PrefetchNoFault = 2,
}

/// A range of a region, as a scatter-gather entry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviseRange {
    /// First address, as work requests name it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The region's key.
    pub lkey: Lkey,
}

urxe_types::errors! {
    /// Why an advice was not followed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AdviseError {
        #[error("an advice about no ranges")]
        Empty = EINVAL,
        #[error("range {index}: no region has the key {lkey}")]
        UnknownKey { index: usize, lkey: Lkey } = ENOENT,
        #[error("range {index}: the key {lkey} is a window's, not a region's")]
        Window { index: usize, lkey: Lkey } = EINVAL,
        #[error("range {index}: the region belongs to {owner:?}, not to {given:?}")]
        WrongPd { index: usize, given: PdId, owner: PdId } = EPERM,
        /// The region is not an on-demand one: its pages are present.
        #[error("range {index}: the region is not registered with ON_DEMAND")]
        NotOnDemand { index: usize } = ENOENT,
        #[error("range {index}: the region grants {granted:?}, without LOCAL_WRITE")]
        NotWritable { index: usize, granted: Access } = EPERM,
        #[error("range {index}: {len} bytes at {addr:#x} are not inside the region")]
        OutOfBounds { index: usize, addr: u64, len: u64 } = EFAULT,
        /// Part of the range is not mapped, or not with the protection needed.
        #[error("range {index}: {len} bytes at {addr:#x} are not all mapped with the protection \
                 needed")]
        NotMapped { index: usize, addr: u64, len: u64 } = EFAULT,
    }
}

impl Memory {
    /// Follows `advice` for all `ranges` of regions of `pd`. All are checked before the first is
    /// touched. On return the pages are present, and nothing keeps them so.
    ///
    /// # Errors
    /// [`AdviseError`].
    pub fn advise(
        &self,
        pd: PdId,
        advice: Advice,
        ranges: &[AdviseRange],
    ) -> Result<(), AdviseError> {
        if ranges.is_empty() {
            return Err(AdviseError::Empty);
        }
        let places = ranges
            .iter()
            .enumerate()
            .map(|(index, range)| self.check_advice(pd, advice, index, range));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        for (index, (range, place)) in ranges.iter().zip(places).enumerate() {
            let AdviseRange { addr, len, .. } = *range;
            if len == 0 || advice == Advice::PrefetchNoFault {
                continue;
            }
            checked_copy::make_present(place, len as usize, advice == Advice::PrefetchWrite)
                .map_err(|(PopulateError::NotMapped | PopulateError::NotAccessible)| {
                    AdviseError::NotMapped { index, addr, len }
                })?;
        }
        Ok(())
    }

    /// Where the range begins in this process.
    fn check_advice(
        &self,
        pd: PdId,
        advice: Advice,
        index: usize,
        range: &AdviseRange,
    ) -> Result<*mut u8, AdviseError> {
        let AdviseRange { addr, len, lkey } = *range;
        let pin = self.pin_key(lkey.0).ok_or(AdviseError::UnknownKey { index, lkey })?;
        let region = pin.region();
        if region.scope != AccessScope::All {
            return Err(AdviseError::Window { index, lkey });
        }
        if region.pd != pd {
            return Err(AdviseError::WrongPd { index, given: pd, owner: region.pd });
        }
        if !region.access.contains(Access::ON_DEMAND) {
            return Err(AdviseError::NotOnDemand { index });
        }
        if advice == Advice::PrefetchWrite && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(AdviseError::NotWritable { index, granted: region.access });
        }
        let page = checked_copy::page_size() as u64;
        // The last page has to end inside the address space as well, which matters in a region of
        // all of it.
        let ends = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page));
        if !region.contains(addr, len) || (region.layout == Layout::Whole && ends.is_none()) {
            return Err(AdviseError::OutOfBounds { index, addr, len });
        }
        Ok(pin.place(addr).0)
    }
}
