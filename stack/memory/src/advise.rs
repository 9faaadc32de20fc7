//! Prefetching of pages of on-demand regions (`ibv_advise_mr`).

use super::checked_copy::{self, PopulateError};
use super::layout::{AccessScope, Layout};
use super::{Access, Memory, PdId};
use urxe_types::allocate::{self, OutOfMemory};
use urxe_wire::Lkey;

/// An advice (`enum ibv_advise_mr_advice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Advice {
    /// Makes the pages present for reading.
    Prefetch = 0,
    /// Makes the pages present for writing.
    PrefetchWrite = 1,
    /// Prepares only pages that are present, and faults no pages in. This stack keeps no
    /// translations, so only the checks remain.
    PrefetchNoFault = 2,
}

/// A range of a region, in the form of a scatter-gather entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviseRange {
    /// First address, as in work requests.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The key of the region.
    pub lkey: Lkey,
}

urxe_types::errors! {
    /// An error of an advice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AdviseError {
        #[error("no ranges: an advice needs at least one range")]
        Empty = EINVAL,
        #[error("range {index}: no region has the key {lkey}")]
        UnknownKey { index: usize, lkey: Lkey } = ENOENT,
        #[error("range {index}: the key {lkey} belongs to a window, not to a region")]
        Window { index: usize, lkey: Lkey } = EINVAL,
        #[error("range {index}: the region belongs to {owner:?}, not to {given:?}")]
        WrongPd { index: usize, given: PdId, owner: PdId } = EPERM,
        /// The region is not an on-demand region, so its pages are present. Programs take
        /// EOPNOTSUPP, the answer of `rdma_rxe` in Linux 6.1 and 6.12, as a missing feature.
        #[error("range {index}: the region is not registered with ON_DEMAND")]
        NotOnDemand { index: usize } = EOPNOTSUPP,
        #[error("range {index}: the region grants {granted:?}, without LOCAL_WRITE")]
        NotWritable { index: usize, granted: Access } = EPERM,
        #[error("range {index}: {len} bytes at {addr:#x} are not inside the region")]
        OutOfBounds { index: usize, addr: u64, len: u64 } = EFAULT,
        /// Part of the range is not mapped, or lacks the required protection.
        #[error("range {index}: {len} bytes at {addr:#x} are not all mapped with the protection \
                 needed")]
        NotMapped { index: usize, addr: u64, len: u64 } = EFAULT,
        /// The system has no memory for a copy of the list of ranges.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }
}

impl Memory {
    /// Follows `advice` for all `ranges` of regions of `pd`. All ranges are checked before the
    /// first page is touched. On return the pages are present, but the system may reclaim them
    /// again.
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
        let mut places = allocate::vec(ranges.len())?;
        for (index, range) in ranges.iter().enumerate() {
            places.push(self.check_advice(pd, advice, index, range)?);
        }
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

    /// Returns the address of the range in this process.
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
        // The last page must also end inside the address space. This matters in a region that is
        // the whole address space.
        let ends = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page));
        if !region.contains(addr, len) || (region.layout == Layout::Whole && ends.is_none()) {
            return Err(AdviseError::OutOfBounds { index, addr, len });
        }
        Ok(pin.place(addr).0)
    }
}
