//! Structure of queue pair numbers.
//!
//! ```text
//! 23        18 17                                0
//! | process slot | index and generation, permuted  |
//! ```
//!
//! A socket filter uses the upper six bits to select one of the processes that share an address.
//! These bits are not permuted. The lower 18 bits hold the index in the process's table (16 bits)
//! and a generation (2 bits). A keyed Feistel network permutes them, so that numbers cannot be
//! guessed and a freed number is not reused at once. Its round functions are random tables, so that
//! a peer cannot compute numbers from those that it has seen. The numbers 0, 1 and 0xffffff are
//! reserved.

use urxe_wire::Qpn;

use crate::rng::SecretRng;

/// The largest number of processes that share one address.
pub const MAX_PROCESS_SLOTS: u8 = 64;
/// The slot of QP0 and QP1, which do not belong to one process.
pub const MANAGEMENT_SLOT: u8 = MAX_PROCESS_SLOTS;
/// The largest number of queue pairs of one process.
pub const MAX_QPS: u32 = 1 << INDEX_BITS;

/// The number of freed indices before the first of them is reused.
///
/// With the generations, a number is reused after at least four times as many queue pairs. An entry
/// has 750 bytes, so the freed entries need 3 MiB.
pub const MIN_FREE_QP_INDICES: usize = 4096;

const INDEX_BITS: u32 = 16;
const LOW_BITS: u32 = SLOT_SHIFT;
/// Position of the process slot.
pub const SLOT_SHIFT: u32 = 18;

const HALF_BITS: u32 = LOW_BITS / 2;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
/// The number of values of a half.
const HALVES: usize = 1 << HALF_BITS;
const ROUNDS: usize = 4;
/// The number of uses of an index before its first number is reused.
pub const GENERATIONS: u32 = 1 << (LOW_BITS - INDEX_BITS);

/// Returns the process slot in `qpn`, which is meaningful for numbers of this structure only.
#[must_use]
pub fn process_slot(qpn: Qpn) -> u8 {
    (qpn.value() >> LOW_BITS) as u8
}

/// Returns the process slot that selects a path to `qpn`, or [`MANAGEMENT_SLOT`] for QP0 and QP1.
#[must_use]
pub fn peer_slot(qpn: Qpn) -> u8 {
    if qpn.value() <= Qpn::QP1.value() { MANAGEMENT_SLOT } else { process_slot(qpn) }
}

/// The numbering of the queue pairs of one device.
#[derive(Debug)]
pub struct QpNumbers {
    process_slot: u8,
    /// The round functions: 1 KiB each.
    rounds: [Box<[u16; HALVES]>; ROUNDS],
}

impl QpNumbers {
    /// Returns the numbering of the process at `process_slot`, permuted by `seed`.
    ///
    /// # Panics
    /// Panics if `process_slot` is not below [`MAX_PROCESS_SLOTS`].
    #[must_use]
    pub fn new(process_slot: u8, seed: u64) -> Self {
        assert!(
            process_slot < MAX_PROCESS_SLOTS,
            "process slot {process_slot} of {MAX_PROCESS_SLOTS}"
        );
        let mut rng = SecretRng::stream(seed, 0x5150_4e00);
        let rounds = [(); ROUNDS].map(|()| Box::new([(); HALVES].map(|()| rng.next_u32() as u16)));
        Self { process_slot, rounds }
    }

    /// Returns the number of queue pair `index` in its `generation`th use, or `None` for a reserved
    /// number.
    pub fn number(&self, index: u32, generation: u32) -> Option<Qpn> {
        debug_assert!(index < MAX_QPS);
        let low = self.permute((generation % GENERATIONS) << INDEX_BITS | index);
        let value = u32::from(self.process_slot) << LOW_BITS | low;
        Qpn::new(value).filter(|qpn| !matches!(qpn.value(), 0 | 1 | 0xff_ffff))
    }

    /// Returns the index of `qpn`, if the number belongs to this process. The caller must check the
    /// queue pair at that index, which can have another generation.
    #[inline]
    pub fn index(&self, qpn: Qpn) -> Option<u32> {
        let value = qpn.value();
        (value >> LOW_BITS == u32::from(self.process_slot))
            .then(|| self.restore(value & ((1 << LOW_BITS) - 1)) & (MAX_QPS - 1))
    }

    fn round(&self, round: usize, half: u32) -> u32 {
        u32::from(self.rounds[round][(half & HALF_MASK) as usize]) & HALF_MASK
    }

    fn permute(&self, value: u32) -> u32 {
        let (mut left, mut right) = (value >> HALF_BITS, value & HALF_MASK);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << HALF_BITS | right
    }

    fn restore(&self, value: u32) -> u32 {
        let (mut left, mut right) = (value >> HALF_BITS, value & HALF_MASK);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        left << HALF_BITS | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_index_and_never_collide() {
        let numbers = QpNumbers::new(5, 42);
        let mut seen = std::collections::HashSet::new();
        for generation in 0..GENERATIONS {
            for index in 0..MAX_QPS {
                let Some(qpn) = numbers.number(index, generation) else { continue };
                assert_eq!(numbers.index(qpn), Some(index));
                assert_eq!(qpn.value() >> LOW_BITS, 5);
                assert!(seen.insert(qpn));
            }
        }
        assert_eq!(seen.len(), 1 << LOW_BITS);
    }

    #[test]
    fn the_reserved_numbers_are_never_given_out() {
        for (slot, reserved) in [(0, vec![0, 1]), (MAX_PROCESS_SLOTS - 1, vec![0xff_ffff])] {
            let numbers = QpNumbers::new(slot, 7);
            let all = (0..GENERATIONS).flat_map(|g| (0..MAX_QPS).map(move |i| (i, g)));
            let refused = all
                .filter(|(index, generation)| numbers.number(*index, *generation).is_none())
                .count();
            assert_eq!(refused, reserved.len());
        }
    }

    #[test]
    fn numbers_of_another_process_slot_have_no_index() {
        let qpn = QpNumbers::new(3, 1).number(9, 0).unwrap();
        assert_eq!(QpNumbers::new(4, 1).index(qpn), None);
    }

    #[test]
    fn numbers_are_spread_and_differ_by_seed() {
        let of = |seed| (0..64).map(|i| QpNumbers::new(0, seed).number(i, 0)).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        let same = of(1).iter().zip(of(2)).filter(|(a, b)| **a == *b).count();
        assert!(same < 4, "{same} of 64 numbers do not depend on the seed");
    }
}
