//! Conversion between the indices of the key table and 32-bit keys.
//!
//! ```text
//!  key     31                              8 7            0
//!         | index, permuted (24 bits)       | low byte     |
//!
//!  index   23      18 17                   0
//!         | segment  | turn    | offset      |
//! ```
//! An index names a slot by the segment and the offset. The other bits are the turn: a segment of
//! 2^n slots leaves 18 - n bits for it. Each use of a slot takes the next turn. After the last turn
//! the next low byte follows, in a keyed permutation of all 256 values. So the keys of a slot
//! repeat after 2^(18 - n) × 256 uses. `slot_allocator` lets other slots be used in between.
//!
//! The segments are in three classes, and no index is in two of them:
//!
//! | class | segments | keys |
//! |---|---|---|
//! | `Region` | 0 to 15 | regions of a range of memory |
//! | `Whole` | 16 to 31 | regions of the whole address space |
//! | `Changing` | 32 to 63 | fast-registration regions and windows |
//!
//! A key to the whole address space is a key to memory with other owners. If it had the value of a
//! former key, a request that was posted with the former key could overwrite anything. The program
//! chooses the low byte of a `Changing` key. Therefore only the upper 24 bits distinguish two
//! objects of this class, and an object of another class never has these upper bits.
//!
//! The permutation is a Feistel network of six rounds. Its round functions are random tables, so
//! that a peer cannot compute keys from those that it has seen. From the whole permutation of a
//! network of five rounds, a program can compute the tables in 2^24 steps. Six rounds need 2^24600
//! steps (Biryukov, Leurent and Perrin, "Cryptanalysis of Feistel Networks with Secret Round
//! Functions", 2015). The data path needs six loads from a key to its index.
//!
//! All tables and the order of the low bytes follow from a secret seed of 64 bits by SipHash-2-4. A
//! peer without a key guesses one with a probability of 2⁻³² per live region and attempt. RoCE
//! sends keys in plain text, so a peer that reads packets needs no guess. With the same seed, every
//! run has the same keys, on which the replays of the simulation rely.

use std::ops::Range;

/// Number of bits of an index.
pub(super) const INDEX_BITS: u32 = 24;

/// Number of bits of an index below the segment.
pub(super) const SEGMENT_INDEX_BITS: u32 = 18;

const SEGMENT_INDEX_MASK: u32 = (1 << SEGMENT_INDEX_BITS) - 1;

/// Number of segments.
pub(super) const SEGMENTS: usize = 1 << (INDEX_BITS - SEGMENT_INDEX_BITS);

/// Number of slots of the first segment of a class (log2). The second has as many, and each later
/// one doubles, up to the number of indices of a segment.
const FIRST_SEGMENT_BITS: u32 = 6;

/// The first segment of a class, counted from 0, that has a slot for each of its indices.
const FULL_SEGMENT: u32 = SEGMENT_INDEX_BITS - FIRST_SEGMENT_BITS + 1;

const HALF_BITS: u32 = INDEX_BITS / 2;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
/// Number of rounds of the permutation of indices.
const ROUNDS: usize = 6;
/// Number of rounds of the permutation of low bytes.
const LOW_BYTE_ROUNDS: u64 = 4;

/// Number of bits of a half that select an entry of a table. A table then has 4 KiB, the most that
/// one allocation may have without a check for failure.
const TABLE_BITS: u32 = HALF_BITS - 1;
const TABLE_LEN: usize = 1 << TABLE_BITS;
const TABLE_MASK: u32 = (1 << TABLE_BITS) - 1;

/// The keyed permutations of one table.
pub(super) struct Keys {
    seed: u64,
    rounds: [Round; ROUNDS],
}

/// A round function: the values for the lower half of all arguments, and for the upper half.
struct Round([Box<[u16; TABLE_LEN]>; 2]);

impl Round {
    /// Makes round function number `round` of a seed.
    fn new(seed: u64, round: u64) -> Self {
        /// Number of entries that one output of the hash function fills.
        const LANES: usize = 4;
        Self([0, 1].map(|part| {
            let mut table = Box::new([0; TABLE_LEN]);
            for (place, entries) in (0_u64..).zip(table.chunks_mut(LANES)) {
                let mut random = prf(seed, Domain::Index, round << 32 | part << 16 | place);
                for entry in entries {
                    *entry = random as u16 & HALF_MASK as u16;
                    random >>= u16::BITS;
                }
            }
            table
        }))
    }

    #[inline(always)]
    fn apply(&self, half: u32) -> u32 {
        let table = &self.0[(half >> TABLE_BITS & 1) as usize];
        u32::from(table[(half & TABLE_MASK) as usize])
    }
}

impl Keys {
    pub(super) fn new(seed: u64) -> Self {
        let rounds = std::array::from_fn(|round| Round::new(seed, round as u64));
        Self { seed, rounds }
    }

    /// Returns the key of the slot at `position` in its use number `uses`.
    pub(super) fn key(&self, position: Position, uses: u32) -> u32 {
        let turn_bits = SEGMENT_INDEX_BITS - position.segment_bits();
        let turn = uses & ((1 << turn_bits) - 1);
        let index = position.0 | turn << position.segment_bits();
        self.permute(index) << 8 | u32::from(self.low_byte(index, (uses >> turn_bits) as u8))
    }

    /// Returns the index to which `key` may belong. The slot decides whether it does.
    pub(super) fn index(&self, key: u32) -> u32 {
        let (mut left, mut right) = (key >> 8 >> HALF_BITS, (key >> 8) & HALF_MASK);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ round.apply(left), left);
        }
        (left << HALF_BITS) | right
    }

    fn permute(&self, index: u32) -> u32 {
        let (mut left, mut right) = (index >> HALF_BITS, index & HALF_MASK);
        for round in &self.rounds {
            (left, right) = (right, left ^ round.apply(right));
        }
        (left << HALF_BITS) | right
    }

    fn low_byte(&self, index: u32, generation: u8) -> u8 {
        let (mut left, mut right) = (generation >> 4, generation & 0xf);
        for round in 0..LOW_BYTE_ROUNDS {
            let message = (u64::from(index) << 16) | (round << 8) | u64::from(right);
            let keyed = (prf(self.seed, Domain::LowByte, message) & 0xf) as u8;
            (left, right) = (right, left ^ keyed);
        }
        (left << 4) | right
    }
}

/// Returns whether two keys belong to one object of the class [`Class::Changing`], whose low byte
/// the program chooses.
pub(super) const fn is_same_object(one: u32, other: u32) -> bool {
    (one ^ other) >> 8 == 0
}

/// The kind of object of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A region of a range of memory.
    Region,
    /// A region of the whole address space.
    Whole,
    /// A fast-registration region or a window.
    Changing,
}

impl Class {
    /// Returns the segments of the class.
    const fn segments(self) -> Range<u32> {
        match self {
            Self::Region => 0..16,
            Self::Whole => 16..32,
            Self::Changing => 32..64,
        }
    }

    /// Returns the number of slots of all segments of the class.
    pub(super) const fn capacity(self) -> u32 {
        let Range { start, end } = self.segments();
        // The segments before the first one of full size have together as many slots as that one.
        (end - start - FULL_SEGMENT + 1) << SEGMENT_INDEX_BITS
    }
}

/// The place of a slot: its index in the first turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u32);

impl Position {
    /// Returns the place of the slot number `number` of a class, which is below the capacity of the
    /// class.
    pub(super) const fn of(class: Class, number: u32) -> Self {
        let full_segments = number >> SEGMENT_INDEX_BITS;
        let (segment, start) = if number < 1 << FIRST_SEGMENT_BITS {
            (0, 0)
        } else if full_segments == 0 {
            let top = number.ilog2();
            (top - FIRST_SEGMENT_BITS + 1, 1 << top)
        } else {
            (FULL_SEGMENT - 1 + full_segments, full_segments << SEGMENT_INDEX_BITS)
        };
        Self(((class.segments().start + segment) << SEGMENT_INDEX_BITS) + number - start)
    }

    /// Returns the place of the slot to which an index belongs.
    pub(super) const fn of_index(index: u32) -> Self {
        let in_segment = (1 << Self(index).segment_bits()) - 1;
        Self(index & (!SEGMENT_INDEX_MASK | in_segment))
    }

    /// Returns the class of the slot.
    pub(super) const fn class(self) -> Class {
        match self.0 >> SEGMENT_INDEX_BITS {
            0..16 => Class::Region,
            16..32 => Class::Whole,
            _ => Class::Changing,
        }
    }

    /// Returns the number of the segment.
    pub(super) const fn segment(self) -> usize {
        (self.0 >> SEGMENT_INDEX_BITS) as usize
    }

    /// Returns the number of the slot in its segment.
    pub(super) const fn offset(self) -> usize {
        (self.0 & SEGMENT_INDEX_MASK) as usize
    }

    /// Returns the number of slots of the segment (log2).
    pub(super) const fn segment_bits(self) -> u32 {
        match (self.0 >> SEGMENT_INDEX_BITS) - self.class().segments().start {
            0 => FIRST_SEGMENT_BITS,
            nth @ 1..FULL_SEGMENT => FIRST_SEGMENT_BITS + nth - 1,
            _ => SEGMENT_INDEX_BITS,
        }
    }

    /// Returns the number of uses after which the keys of the slot repeat.
    #[cfg(test)]
    pub(super) const fn keys(self) -> u32 {
        1 << (SEGMENT_INDEX_BITS - self.segment_bits() + u8::BITS)
    }
}

/// SipHash-2-4. The standard library deprecates this hasher for hash tables, but keeps its output
/// fixed.
#[allow(deprecated)]
fn prf(seed: u64, domain: Domain, message: u64) -> u64 {
    use std::hash::Hasher;
    let mut hasher = std::hash::SipHasher::new_with_keys(seed, domain as u64);
    hasher.write(&message.to_le_bytes());
    hasher.finish()
}

/// The purpose of a pseudo-random value, so that no two uses share one.
#[derive(Clone, Copy)]
enum Domain {
    Index = 1,
    LowByte = 2,
}

#[cfg(test)]
mod tests;
