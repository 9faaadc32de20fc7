//! The mappings of this side: memory that the peer may write by riowrite. The peer has a list of
//! them, and each mapping has an index in that list.
//!
//! ```text
//!   add ──> not sent ──> sent ──withdraw──> length 0, not sent ──> gone
//!             ▲                                  │
//!             └─────────── add ──────────────────┘
//! ```
//!
//! A new mapping has the lowest free index. The peer uses the first entry that has an offset, so no
//! entry of a former mapping hides a later one (`rs_find_iomap`, `rs_get_iomap_mr`).

use super::segment::{Iomap, Segment};

/// The mappings of this side. The length of the peer's list limits their number.
#[derive(Debug)]
pub struct Mappings {
    room: u32,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    index: u16,
    /// The mapping; of length 0 after its withdrawal.
    iomap: Iomap,
    is_sent: bool,
}

impl Entry {
    const fn is_withdrawn(&self) -> bool {
        self.iomap.memory.length == 0
    }
}

impl Mappings {
    pub const fn new(room: u32) -> Self {
        Self { room, entries: Vec::new() }
    }

    /// Adds a mapping of at least one byte, and returns its index. Returns `None` if the peer's
    /// list has no free entry.
    pub fn add(&mut self, iomap: Iomap) -> Option<u16> {
        let index = self.free_index()?;
        let entry = Entry { index, iomap, is_sent: false };
        match self.entries.iter_mut().find(|entry| entry.index == index) {
            Some(withdrawn) => *withdrawn = entry,
            None => self.entries.push(entry),
        }
        Some(index)
    }

    /// Removes a mapping. The peer gets no message, as in the original.
    pub fn remove(&mut self, index: u16) {
        self.entries.retain(|entry| entry.index != index);
    }

    /// Removes a mapping, and schedules a message: an entry of length 0, in which no peer finds an
    /// offset.
    pub fn withdraw(&mut self, index: u16) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.index == index) {
            entry.iomap.memory = Segment::default();
            entry.is_sent = false;
        }
    }

    /// Returns the mappings that were not removed.
    pub fn iter(&self) -> impl Iterator<Item = &Iomap> {
        self.entries.iter().filter(|entry| !entry.is_withdrawn()).map(|entry| &entry.iomap)
    }

    /// Returns whether the peer's list has a free entry.
    pub fn has_room(&self) -> bool {
        self.free_index().is_some()
    }

    /// Returns whether the peer has not received some of the entries.
    pub fn has_unsent(&self) -> bool {
        self.entries.iter().any(|entry| !entry.is_sent)
    }

    /// Returns the first entry that the peer has not received, as sent.
    pub(super) fn next_unsent(&mut self) -> Option<(u16, Iomap)> {
        let place = self.entries.iter().position(|entry| !entry.is_sent)?;
        let entry = &mut self.entries[place];
        entry.is_sent = true;
        let (index, iomap) = (entry.index, entry.iomap);
        if entry.is_withdrawn() {
            self.entries.remove(place);
        }
        Some((index, iomap))
    }

    fn free_index(&self) -> Option<u16> {
        let is_used =
            |index| self.entries.iter().any(|entry| entry.index == index && !entry.is_withdrawn());
        (0..self.room).map_while(|index| u16::try_from(index).ok()).find(|index| !is_used(*index))
    }
}
