//! A table that grows and whose entries never move, so a reader needs neither a lock nor a
//! reference count. A list of free entries.

use std::sync::OnceLock;

use urxe_types::allocate::{self, OutOfMemory};

/// The entries of the first segment. Each further segment is twice as long as the one before.
const FIRST: u32 = 64;
/// The segments, enough for 2^24 entries.
const SEGMENTS: usize = 19;

/// Entries by index, made on first use and kept as long as the table.
#[derive(Debug)]
pub(crate) struct SlotTable<T> {
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
}

impl<T> SlotTable<T> {
    pub const fn new() -> Self {
        Self { segments: [const { OnceLock::new() }; SEGMENTS] }
    }

    /// Returns the segment's number and the position in it.
    #[inline]
    fn place(index: u32) -> (usize, usize) {
        let shifted = index / FIRST + 1;
        let segment = shifted.ilog2();
        let start = FIRST * ((1 << segment) - 1);
        (segment as usize, (index - start) as usize)
    }

    /// Returns the entry, or `None` before [`ensure`](Self::ensure) made the entry.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        let (segment, position) = Self::place(index);
        self.segments.get(segment)?.get()?.get(position)
    }

    /// Returns the entry. Makes the rest of the segment as well if there is none. `None`
    /// beyond 2^24.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the segment.
    pub fn ensure(&self, index: u32, make: impl Fn(u32) -> T) -> Result<Option<&T>, OutOfMemory> {
        let (segment, position) = Self::place(index);
        let Some(place) = self.segments.get(segment) else { return Ok(None) };
        if place.get().is_none() {
            let first = index - position as u32;
            let count = (FIRST << segment) as usize;
            let entries = (0..count).map(|offset| make(first + offset as u32));
            let entries = allocate::collected(entries)?.into_boxed_slice();
            // Another thread may have made the segment meanwhile. Its entries stay then.
            place.get_or_init(|| entries);
        }
        Ok(self.at(index))
    }
}

/// The names of a table's free entries: those to be used again, and those never used.
#[derive(Debug)]
pub(crate) struct FreeList<T> {
    /// Names that were used before. The last one is taken first.
    used: Vec<T>,
    /// The first index that was never used.
    fresh: u32,
}

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        Self { used: Vec::new(), fresh: 0 }
    }
}

impl<T> FreeList<T> {
    /// Takes a free name. `first` makes the first name of an index. `None` if `allowed` names are
    /// in use. Makes room for the return of the name, so that [`put`](Self::put) allocates nothing.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn take(
        &mut self,
        allowed: u32,
        first: impl FnOnce(u32) -> T,
    ) -> Result<Option<T>, OutOfMemory> {
        if let Some(name) = self.used.pop() {
            return Ok(Some(name));
        }
        let index = self.fresh;
        if index >= allowed {
            return Ok(None);
        }
        allocate::reserve(&mut self.used, index as usize + 1)?;
        self.fresh = index + 1;
        Ok(Some(first(index)))
    }

    /// Returns the number of names in use.
    pub fn in_use(&self) -> u32 {
        self.fresh.saturating_sub(u32::try_from(self.used.len()).unwrap_or(u32::MAX))
    }

    /// Returns an entry under the name of its next use.
    pub fn put(&mut self, next: T) {
        self.used.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_its_own_place_that_stays() {
        let table = SlotTable::new();
        let mut addresses = Vec::new();
        for index in 0..1000 {
            let entry: &u32 = table.ensure(index, |i| i).unwrap().unwrap();
            assert_eq!(*entry, index);
            addresses.push(std::ptr::from_ref(entry));
        }
        for index in 0..1000 {
            assert_eq!(std::ptr::from_ref(table.at(index).unwrap()), addresses[index as usize]);
        }
        assert!(table.at(2000).is_none());
        assert!(table.ensure(u32::MAX, |i| i).unwrap().is_none());
    }

    #[test]
    fn names_return_without_an_allocation() {
        let mut names = FreeList::default();
        let taken: Vec<u32> = (0..100).map(|_| names.take(100, |i| i).unwrap().unwrap()).collect();
        assert_eq!(names.take(100, |i| i).unwrap(), None);
        assert_eq!(names.in_use(), 100);
        let room = names.used.capacity();
        assert!(room >= 100);
        taken.into_iter().for_each(|name| names.put(name));
        assert_eq!(names.used.capacity(), room);
        assert_eq!(names.take(100, |i| i).unwrap(), Some(99), "the last one is taken first");
    }
}
