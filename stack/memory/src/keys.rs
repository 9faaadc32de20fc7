//! Conversion between slots of the key table and 32-bit keys.
//!
//! ```text
//!  31                              8 7            0
//! | slot index, permuted (24 bits)  | low byte     |
//! ```
//! The permutation is a Feistel network of four rounds. Each round is a keyed multiply-and-add with
//! the top bits of the result (a 2-universal hash), so the data path needs four multiplications
//! from a key to its slot. The low byte follows a keyed permutation of all 256 values as its slot
//! is used again. A stale key therefore fails until 255 more registrations used the same slot.
//!
//! Both depend on a 64-bit seed. A peer without a key guesses one with a probability of 2⁻³² per
//! live region and attempt. The seed is no cryptographic protection, and RoCE has none, because
//! keys are sent in plain text. With the same seed, every run has the same keys, on which the
//! replays of the simulation rely.

/// Number of bits of a slot index.
pub(super) const INDEX_BITS: u32 = 24;

const HALF_BITS: u32 = INDEX_BITS / 2;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
const ROUNDS: usize = 4;

/// The keyed permutations of one table.
pub(super) struct Keys {
    seed: u64,
    rounds: [Round; ROUNDS],
}

#[derive(Clone, Copy)]
struct Round {
    factor: u64,
    term: u64,
}

impl Round {
    fn apply(self, half: u32) -> u32 {
        let product = u64::from(half).wrapping_mul(self.factor).wrapping_add(self.term);
        (product >> (64 - HALF_BITS)) as u32
    }
}

impl Keys {
    pub(super) fn new(seed: u64) -> Self {
        let mut counter = 0;
        let rounds = [(); ROUNDS].map(|()| {
            counter += 2;
            Round {
                factor: prf(seed, Domain::Index, counter) | 1,
                term: prf(seed, Domain::Index, counter + 1),
            }
        });
        Self { seed, rounds }
    }

    /// Returns the key of slot `index` in its use number `generation` (modulo 256).
    pub(super) fn key(&self, index: u32, generation: u8) -> u32 {
        (self.permute(index) << 8) | u32::from(self.low_byte(index, generation))
    }

    /// Returns the slot to which `key` may belong. The low byte decides whether it does.
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
        for round in 0..ROUNDS as u64 {
            let message = (u64::from(index) << 16) | (round << 8) | u64::from(right);
            let keyed = (prf(self.seed, Domain::LowByte, message) & 0xf) as u8;
            (left, right) = (right, left ^ keyed);
        }
        (left << 4) | right
    }
}

/// The purpose of a pseudo-random value, so that no two uses share one.
#[derive(Clone, Copy)]
enum Domain {
    Index = 1,
    LowByte = 2,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_comes_back() {
        for seed in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
            let keys = Keys::new(seed);
            for index in (0..1 << INDEX_BITS).step_by(997) {
                assert_eq!(keys.index(keys.key(index, 7)), index, "seed {seed:#x}");
            }
        }
    }

    #[test]
    fn indices_are_permuted_without_collision() {
        let keys = Keys::new(42);
        let mut seen = vec![false; 1 << INDEX_BITS];
        for index in 0..1 << INDEX_BITS {
            let permuted = keys.permute(index) as usize;
            assert!(!seen[permuted], "{permuted:#x} twice");
            seen[permuted] = true;
        }
    }

    #[test]
    fn low_bytes_of_a_slot_are_all_different() {
        let keys = Keys::new(42);
        for index in [0, 1, 63, 64, 0xff_ffff] {
            let mut bytes: Vec<u8> =
                (0..=255).map(|generation| keys.low_byte(index, generation)).collect();
            assert_ne!(bytes, (0..=255).collect::<Vec<u8>>());
            bytes.sort_unstable();
            assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn seeds_differ_and_one_seed_repeats() {
        let keys = |seed| (0..64).map(|index| Keys::new(seed).key(index, 0)).collect::<Vec<_>>();
        assert_eq!(keys(1), keys(1));
        let (one, two) = (keys(1), keys(2));
        assert!(one.iter().zip(&two).filter(|(a, b)| a == b).count() <= 1);
        let steps = one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) >> 8);
        let distinct: std::collections::BTreeSet<u32> = steps.collect();
        assert!(
            distinct.len() > 32,
            "neighbouring slots must not have evenly spaced keys: {distinct:?}"
        );
    }
}
