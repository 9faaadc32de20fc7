//! Slices of regions, for work requests.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use urxe_stack::memory::Mr;
use urxe_stack::qp::work_request::Sge;
use urxe_wire::Lkey;

use crate::device::DeviceIdentity;
use crate::pd::ProtectionDomain;

/// The reason why a region has no such slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
#[non_exhaustive]
pub enum SliceError {
    /// The range exceeds the region.
    #[error("bytes {start}..{end} exceed the region of {region_len} bytes")]
    OutOfBounds { start: usize, end: usize, region_len: usize },
    /// The range exceeds the length of a scatter-gather entry.
    #[error("a slice of {len} bytes exceeds the {} bytes of a scatter-gather entry", u32::MAX)]
    TooLong { len: usize },
}

/// Returns the start and end of `range`. An open end is that of `whole`.
pub(super) fn resolve_range<T: Copy>(
    range: &impl RangeBounds<T>,
    whole: Range<T>,
    next: impl Fn(T) -> T,
) -> (T, T) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => next(*before),
        Bound::Unbounded => whole.start,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => next(*last),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => whole.end,
    };
    (start, end)
}

/// A slice of a region: one scatter-gather entry (`struct ibv_sge`).
///
/// The slice borrows its region, so safe code cannot post a slice of a dropped region. A request
/// may outlive the region, and then fails, because its key is unknown.
///
/// Safe code cannot make a slice from a number: [`sge`](Self::sge) has no inverse. A slice can be
/// posted only on the device of its region, because its key may denote other memory on another
/// device.
///
/// ```
/// use urxe::{Access, RegionSlice, SliceError, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
/// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let slice: RegionSlice<'_> = region.slice(64..128)?;
/// assert_eq!((slice.len(), slice.sge().addr), (64, 64));
/// let error = region.slice(4000..5000).unwrap_err();
/// assert_eq!(error, SliceError::OutOfBounds { start: 4000, end: 5000, region_len: 4096 });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionSlice<'a> {
    pub(crate) sge: Sge,
    pub(crate) device: DeviceIdentity,
    region: PhantomData<&'a Mr>,
}

impl<'a> RegionSlice<'a> {
    pub(crate) fn new(
        pd: &ProtectionDomain,
        mr: &'a Mr,
        range: impl RangeBounds<usize>,
    ) -> Result<Self, SliceError> {
        Self::inside(pd, mr.iova, mr.len, mr.lkey, range)
    }

    /// Returns a slice from an entry of memory in `pd` that the caller borrows for `'a`.
    pub(crate) fn of(pd: &ProtectionDomain, sge: Sge) -> Self {
        Self { sge, device: pd.device().identity(), region: PhantomData }
    }

    /// Returns a slice of the `region_len` bytes at address `iova` of a region in `pd`.
    pub(crate) fn inside(
        pd: &ProtectionDomain,
        iova: u64,
        region_len: usize,
        lkey: Lkey,
        range: impl RangeBounds<usize>,
    ) -> Result<Self, SliceError> {
        let (start, end) = resolve_range(&range, 0..region_len, |byte| byte.saturating_add(1));
        if start > end || end > region_len {
            return Err(SliceError::OutOfBounds { start, end, region_len });
        }
        let len = end - start;
        let length = u32::try_from(len).map_err(|_| SliceError::TooLong { len })?;
        // Only the end of a region wraps, at the end of the addresses. That slice is empty.
        Ok(Self::of(pd, Sge { addr: iova.wrapping_add(start as u64), length, lkey }))
    }

    /// Returns the slice for a caller that keeps the region itself.
    pub(crate) fn detached(self) -> RegionSlice<'static> {
        RegionSlice { sge: self.sge, device: self.device, region: PhantomData }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sge.length as usize
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    /// Returns the address, length and key as in `struct ibv_sge`.
    #[must_use]
    pub const fn sge(&self) -> Sge {
        self.sge
    }
}

impl fmt::Debug for RegionSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sge.fmt(f)
    }
}
