//! The page list of a fast-registration region: where each page is in this process.
//!
//! Peers' copies read a list by a raw pointer while it is published, so nothing here makes a
//! reference to its entries then: a list is changed only while it is not the one that its region's
//! key stands for.

use super::Buffer;
use super::error::MapError;
use super::layout::Layout;
use std::ptr::NonNull;
use urxe_types::sync::Arc;

/// A piece of memory to be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its first byte.
    pub addr: *mut u8,
    /// Its length in bytes.
    pub len: usize,
}

/// Room for a number of pages, and what was mapped to it last.
pub(super) struct PageList {
    /// As many entries as `capacity`, allocated as a boxed slice.
    entries: NonNull<*mut u8>,
    capacity: usize,
    pub(super) mapping: Option<Mapping>,
    /// Memory that stays as long as the mapping.
    kept: Vec<Arc<Buffer>>,
}

/// What a list stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) len: u64,
    /// Where the first byte is in the first page.
    pub(super) skip: u64,
    pub(super) shift: u8,
    pub(super) writable: bool,
}

impl Mapping {
    pub(super) const fn layout(&self) -> Layout {
        Layout::Paged { shift: self.shift, skip: self.skip }
    }
}

// SAFETY: the list owns its allocation; what the entries point at is not touched through it.
unsafe impl Send for PageList {}

impl PageList {
    pub(super) fn new(capacity: usize) -> Self {
        let entries: Box<[*mut u8]> = vec![std::ptr::null_mut(); capacity].into();
        // A box is never null.
        let entries = NonNull::new(Box::into_raw(entries).cast()).unwrap_or(NonNull::dangling());
        Self { entries, capacity, mapping: None, kept: Vec::new() }
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// For the slot's `base`.
    pub(super) const fn base(&self) -> *mut u8 {
        self.entries.as_ptr().cast()
    }

    /// Maps `pieces`, one after the other, to addresses from `iova` on. Every piece but the first
    /// begins, and every one but the last ends, at the boundary of a page. Nothing changes if it
    /// fails.
    pub(super) fn map(
        &mut self,
        pieces: &[Piece],
        page_size: usize,
        iova: u64,
        writable: bool,
        kept: Vec<Arc<Buffer>>,
    ) -> Result<Mapping, MapError> {
        let mapping = plan(pieces, page_size, iova, writable, self.capacity)?;
        // SAFETY: the allocation has `capacity` entries, and this list is not the published one, so
        // nobody else looks at them.
        let entries =
            unsafe { std::slice::from_raw_parts_mut(self.entries.as_ptr(), self.capacity) };
        let pages = pieces.iter().flat_map(|piece| {
            let into_page = piece.addr.addr() % page_size;
            let first = piece.addr.wrapping_sub(into_page);
            (0..into_page + piece.len)
                .step_by(page_size)
                .map(move |offset| first.wrapping_add(offset))
        });
        for (entry, page) in entries.iter_mut().zip(pages) {
            *entry = page;
        }
        self.mapping = Some(mapping);
        self.kept = kept;
        Ok(mapping)
    }
}

impl Drop for PageList {
    fn drop(&mut self) {
        let entries = std::ptr::slice_from_raw_parts_mut(self.entries.as_ptr(), self.capacity);
        // SAFETY: made by `Box::into_raw` of a slice of this length, and dropped once.
        drop(unsafe { Box::from_raw(entries) });
    }
}

fn plan(
    pieces: &[Piece],
    page_size: usize,
    iova: u64,
    writable: bool,
    capacity: usize,
) -> Result<Mapping, MapError> {
    if !page_size.is_power_of_two() || page_size < MIN_PAGE {
        return Err(MapError::PageSize { given: page_size });
    }
    let (Some(first), false) = (pieces.first(), pieces.iter().any(|piece| piece.len == 0)) else {
        return Err(MapError::Empty);
    };
    let (mut pages, mut len) = (0_usize, 0_u64);
    for (index, piece) in pieces.iter().enumerate() {
        let (start, piece_len) = (piece.addr.addr(), piece.len);
        let end = start
            .checked_add(piece_len)
            .filter(|end| end.checked_next_multiple_of(page_size).is_some());
        let end = end.ok_or(MapError::Wraps { addr: start, len: piece_len })?;
        let is_last = index + 1 == pieces.len();
        if (index > 0 && !start.is_multiple_of(page_size))
            || (!is_last && !end.is_multiple_of(page_size))
        {
            return Err(MapError::Gap { index, addr: start, len: piece_len, page_size });
        }
        pages += (start % page_size + piece_len).div_ceil(page_size);
        len += piece_len as u64;
    }
    if pages > capacity {
        return Err(MapError::TooManyPages { given: pages, allowed: capacity });
    }
    let skip = (first.addr.addr() % page_size) as u64;
    if iova % page_size as u64 != skip {
        return Err(MapError::IovaOffset { addr: first.addr.addr(), iova, page_size });
    }
    if iova.checked_add(len - 1).is_none() {
        return Err(MapError::IovaWraps { iova, len });
    }
    Ok(Mapping { start: iova, len, skip, shift: page_size.trailing_zeros() as u8, writable })
}

/// The smallest page that may be mapped.
const MIN_PAGE: usize = 4096;
