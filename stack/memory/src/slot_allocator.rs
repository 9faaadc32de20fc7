//! The order in which slots are used again.
//!
//! A class prefers the slot that was freed first. The slot must have rested: other slots of the
//! class must have been allocated since. Otherwise the class takes a slot that was never used, so
//! the table grows. Each use of a slot has another key (`keys`), and the rest grows with the size
//! of the slot's segment, because the slots of a large segment have fewer keys:
//!
//! | class | uses until the keys of a slot repeat | rest | allocations until a key repeats |
//! |---|---|---|---|
//! | `Region`, `Whole` | 2^(26 - n) | 2^(n - 1) | 2^25 |
//! | `Changing`, upper 24 bits | 2^(18 - n) | 2^(n + 1) | 2^19 |
//!
//! 2^n is the number of slots of the segment. A stale key of a region therefore stays stale during
//! 2^24 registrations at least, even if a few keys are skipped. A program that registers and
//! deregisters all the time uses a few slots only.
//!
//! A class has at most as many slots as live objects, and the longest rest in addition: if a slot
//! has not rested, all slots that were free when it was freed are in use again.

use super::keys::{Class, Position};
use std::collections::VecDeque;
use urxe_types::allocate::{self, OutOfMemory};

/// The slots of one class.
pub(super) struct SlotAllocator {
    class: Class,
    /// Number of slots that were used at least once.
    used: u32,
    /// Number of allocations, modulo 2^32.
    allocations: u32,
    /// Freed slots, beginning with the one that was freed first.
    free: VecDeque<FreeSlot>,
}

struct FreeSlot {
    position: Position,
    /// The number of allocations when the slot was freed.
    freed_at: u32,
}

impl SlotAllocator {
    pub(super) const fn new(class: Class) -> Self {
        Self { class, used: 0, allocations: 0, free: VecDeque::new() }
    }

    /// Returns a slot for a new object, or `None` if all slots of the class are in use or rest.
    /// Makes room for the return of the slot, so that [`free`](Self::free) allocates nothing.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn allocate(&mut self) -> Result<Option<Position>, OutOfMemory> {
        let has_rested = |free: &mut FreeSlot| {
            // After a rest of 2^32 allocations, a slot waits once more.
            self.allocations.wrapping_sub(free.freed_at) >= rest(self.class, free.position)
        };
        let position = match self.free.pop_front_if(has_rested) {
            Some(free) => free.position,
            None if self.used < self.class.capacity() => {
                let more = self.used as usize + 1 - self.free.len();
                let error = || OutOfMemory::of::<FreeSlot>(self.used as usize + 1);
                allocate::reserved(self.free.try_reserve(more), error)?;
                self.used += 1;
                Position::of(self.class, self.used - 1)
            }
            None => return Ok(None),
        };
        self.allocations = self.allocations.wrapping_add(1);
        Ok(Some(position))
    }

    /// Takes a slot back, which no key names any more.
    pub(super) fn free(&mut self, position: Position) {
        self.free.push_back(FreeSlot { position, freed_at: self.allocations });
    }
}

/// Returns the highest number of objects of a class that can exist at a time.
pub(super) const fn max_objects(class: Class) -> u32 {
    class.capacity() - rest(class, Position::of(class, class.capacity() - 1))
}

/// Returns the number of allocations of the class between two uses of a slot.
const fn rest(class: Class, position: Position) -> u32 {
    match class {
        Class::Region | Class::Whole => 1 << (position.segment_bits() - 1),
        Class::Changing => 1 << (position.segment_bits() + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Live objects come and go in any pattern: one by one, or many at once.
        #[test]
        fn a_slot_rests_and_the_table_stays_small(
            changing in any::<bool>(),
            waves in prop::collection::vec((0..400_usize, 0..400_usize, any::<bool>()), 1..60),
        ) {
            let class = if changing { Class::Changing } else { Class::Region };
            let mut slots = SlotAllocator::new(class);
            let (mut live, mut in_use) = (VecDeque::new(), BTreeSet::new());
            let mut freed_at = BTreeMap::new();
            let (mut allocations, mut most, mut longest_rest) = (0_u32, 0, 0);
            for (allocate, free, newest) in waves {
                for _ in 0..allocate {
                    let position = slots.allocate().unwrap().unwrap();
                    prop_assert!(in_use.insert(position), "{:?} twice", position);
                    if let Some(at) = freed_at.remove(&position) {
                        prop_assert!(allocations - at >= rest(class, position));
                    }
                    allocations += 1;
                    live.push_back(position);
                    longest_rest = longest_rest.max(rest(class, position));
                }
                most = most.max(live.len() as u32);
                for _ in 0..free.min(live.len()) {
                    let freed = if newest { live.pop_back() } else { live.pop_front() };
                    let position = freed.unwrap();
                    in_use.remove(&position);
                    freed_at.insert(position, allocations);
                    slots.free(position);
                }
            }
            prop_assert!(slots.used <= most + longest_rest, "{} slots", slots.used);
        }
    }

    #[test]
    fn a_key_repeats_after_more_than_2_to_the_24_registrations_whatever_the_segment() {
        for class in [Class::Region, Class::Whole] {
            for number in [0, 64, 128, 1000, 100_000, class.capacity() - 1] {
                let position = Position::of(class, number);
                // The last use may be the one of a skipped key.
                let registrations =
                    u64::from(position.keys() - 1) * u64::from(rest(class, position));
                assert!(registrations >= 1 << 24, "{position:?}: {registrations}");
            }
        }
        for number in [0, 64, 1000, 100_000, Class::Changing.capacity() - 1] {
            let position = Position::of(Class::Changing, number);
            let turns = u64::from(position.keys() / 256);
            assert_eq!(turns * u64::from(rest(Class::Changing, position)), 1 << 19);
        }
    }

    #[test]
    fn a_full_class_refuses() {
        let mut slots = SlotAllocator::new(Class::Whole);
        slots.used = Class::Whole.capacity() - 1;
        let last = slots.allocate().unwrap().unwrap();
        assert_eq!(slots.allocate().unwrap(), None);
        slots.free(last);
        assert_eq!(slots.allocate().unwrap(), None, "it has not rested");
    }
}
