//! The page list of a fast-registration region: the location of each page in this process.
//!
//! Peers' copies read a published list by a raw pointer, so this module makes no reference to the
//! entries of a published list. A list changes only while it is not the active one of its region.

use super::Buffer;
use super::error::MapError;
use super::layout::Layout;
use std::ptr::NonNull;
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::sync::Arc;

/// A piece of memory to map.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub addr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// Room for a number of pages, and the last mapping.
pub(super) struct PageList {
    /// `capacity` entries, allocated as a boxed slice.
    entries: NonNull<*mut u8>,
    capacity: usize,
    pub(super) mapping: Option<Mapping>,
    /// Buffers that stay as long as the mapping.
    kept: Vec<Arc<Buffer>>,
}

/// The range of a mapped list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) len: u64,
    /// Offset of the first byte in the first page.
    pub(super) skip: u64,
    pub(super) shift: u8,
    pub(super) writable: bool,
}

impl Mapping {
    pub(super) const fn layout(&self) -> Layout {
        Layout::Paged { shift: self.shift, skip: self.skip }
    }
}

// SAFETY: the list owns its allocation, and never accesses the memory to which its entries point.
unsafe impl Send for PageList {}

impl PageList {
    pub(super) fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        let entries = allocate::slice(std::ptr::null_mut::<u8>(), capacity)?;
        // A box is never null.
        let entries = NonNull::new(Box::into_raw(entries).cast()).unwrap_or(NonNull::dangling());
        Ok(Self { entries, capacity, mapping: None, kept: Vec::new() })
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the `base` for the slot.
    pub(super) const fn base(&self) -> *mut u8 {
        self.entries.as_ptr().cast()
    }

    /// Maps `pieces`, one after another, to addresses from `iova` on. Every piece except the first
    /// must begin at a page boundary, and every piece except the last must end at one. On failure,
    /// nothing changes.
    pub(super) fn map(
        &mut self,
        pieces: &[Piece],
        page_size: usize,
        iova: u64,
        writable: bool,
        kept: Vec<Arc<Buffer>>,
    ) -> Result<Mapping, MapError> {
        let mapping = plan(pieces, page_size, iova, writable, self.capacity)?;
        // SAFETY: the allocation has `capacity` entries, and this list is not published, so no
        // other thread reads the entries.
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
        // Many parts of one large buffer can exceed the numbers, and then the capacity as well.
        pages = pages.saturating_add((start % page_size + piece_len).div_ceil(page_size));
        len = len.saturating_add(piece_len as u64);
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

/// The smallest page size for a mapping.
const MIN_PAGE: usize = 4096;
