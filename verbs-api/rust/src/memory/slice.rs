//! Parts of regions, as work requests name them.

use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use urxe_stack::memory::Mr;
use urxe_stack::qp::work_request::Sge;
use urxe_wire::Lkey;

/// Why there is no such part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum SliceError {
    /// It is not wholly inside.
    #[error("bytes {start}..{end} are not inside a region of {region_len} bytes")]
    OutOfBounds { start: usize, end: usize, region_len: usize },
    /// It is longer than a scatter-gather entry can say.
    #[error("{len} bytes; a scatter-gather entry has at most {}", u32::MAX)]
    TooLong { len: usize },
}

/// Where `range` starts and ends, of `whole` if it does not say.
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

/// Part of a region: one scatter-gather entry (`struct ibv_sge`). It borrows the region, so that
/// none is posted that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSlice<'a> {
    pub(crate) sge: Sge,
    region: PhantomData<&'a Mr>,
}

impl<'a> RegionSlice<'a> {
    pub(crate) fn new(mr: &'a Mr, range: impl RangeBounds<usize>) -> Result<Self, SliceError> {
        Self::inside(mr.iova, mr.len, mr.lkey, range)
    }

    /// Of whatever the caller borrows for `'a`, what this entry names.
    pub(crate) const fn of(sge: Sge) -> Self {
        Self { sge, region: PhantomData }
    }

    /// The same, of `region_len` bytes from `iova` on.
    pub(crate) fn inside(
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
        Ok(Self::of(Sge { addr: iova + start as u64, length, lkey }))
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sge.length as usize
    }

    /// Whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    /// Address, length and key, as `struct ibv_sge` has them.
    #[must_use]
    pub const fn sge(&self) -> Sge {
        self.sge
    }
}
