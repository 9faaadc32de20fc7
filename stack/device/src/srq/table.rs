//! The table of a device's shared receive queues, by their numbers.

use urxe_types::ids::SrqId;
use urxe_types::sync::{Arc, Mutex, lock};

use super::Srq;
use super::xrcd::XrcdRef;
use crate::slots::Slots;

/// The shared receive queues of a device.
pub(crate) struct SrqTable(Slots<Mutex<Option<Arc<Srq>>>>);

impl SrqTable {
    pub const fn new() -> Self {
        Self(Slots::new())
    }

    /// Returns the shared receive queue of that number, if `xrcd` has it.
    pub fn find(&self, id: SrqId, xrcd: &XrcdRef) -> Option<Arc<Srq>> {
        let srq = lock(self.at(id)?).clone()?;
        (srq.id() == id && srq.is_in(xrcd)).then_some(srq)
    }

    /// Returns the place of a number, if one was ever made.
    pub fn at(&self, id: SrqId) -> Option<&Mutex<Option<Arc<Srq>>>> {
        self.0.at(index_of(id))
    }

    /// Returns the place of a number, made when there is none yet.
    pub fn place(&self, id: SrqId) -> Option<&Mutex<Option<Arc<Srq>>>> {
        self.0.ensure(index_of(id), |_| Mutex::new(None))
    }
}

/// Bits of a number that are the index; the rest of its 24 bits count how often the index was used.
pub(crate) const INDEX_BITS: u32 = 16;
/// The most shared receive queues of a device.
pub(crate) const MAX_SRQS: u32 = 1 << INDEX_BITS;
/// How often an index is used before its numbers begin anew.
pub(crate) const GENERATIONS: u32 = 1 << (24 - INDEX_BITS);

fn index_of(id: SrqId) -> u32 {
    id.0 & (MAX_SRQS - 1)
}
