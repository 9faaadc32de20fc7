//! A small seeded random number generator whose output never changes, so that a seed always replays
//! the same run.
//!
//! The algorithm is xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", 2018), with a state from SplitMix64 and a 64-bit seed. Generators of other crates
//! may change between versions. The tests fix the output of this one.
//!
//! [`Rng`] is not suitable for secrets, because its outputs predict later ones. The numbers that
//! peers see (queue pair numbers, first PSNs, communication ids) come from [`SecretRng`]. Its seed
//! is a secret from the operating system, unless a run must be repeatable.

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hasher as _;

/// A seeded generator of uniform numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns a generator whose output depends only on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut split = seed;
        Self { state: [(); 4].map(|()| split_mix(&mut split)) }
    }

    /// Returns a generator for one of several independent streams of a seed. A stream that draws
    /// more numbers does not affect the others.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut split = stream;
        Self::new(seed ^ split_mix(&mut split))
    }

    /// Returns the next 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// Returns the next 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.next_u64(), bound)
    }

    /// Returns a number from `low` to `high`, inclusive, or `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.saturating_sub(low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.next_u64(),
        }
    }

    /// Returns an index below `len`, or 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    /// Panics if `choices` is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Fills `bytes` with uniform bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns true with the given probability.
    pub fn chance(&mut self, probability: Probability) -> bool {
        self.below(u64::from(Probability::ALWAYS.0)) < u64::from(probability.0)
    }
}

/// A seeded generator for numbers that peers see and must not predict. Each output is the
/// SipHash-2-4 of a counter, so that earlier outputs do not tell later ones without the seed.
#[derive(Clone)]
pub struct SecretRng {
    key: [u64; 2],
    counter: u64,
}

impl SecretRng {
    /// Returns a generator for one of several independent streams of a seed. The seed is the
    /// secret; the stream is a public number.
    #[must_use]
    pub const fn stream(seed: u64, stream: u64) -> Self {
        Self { key: [seed, stream], counter: 0 }
    }

    /// Returns the next 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.counter += 1;
        let [k0, k1] = self.key;
        // The other hashers of the standard library take no key.
        #[allow(deprecated, reason = "deprecated for hash tables, in favour of `RandomState`")]
        let mut hasher = std::hash::SipHasher::new_with_keys(k0, k1);
        hasher.write_u64(self.counter);
        hasher.finish()
    }

    /// Returns the next 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.next_u64(), bound)
    }
}

/// Without the key.
impl fmt::Debug for SecretRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretRng").field("counter", &self.counter).finish_non_exhaustive()
    }
}

/// Maps 64 uniform bits to the numbers below `bound`.
fn below(uniform: u64, bound: u64) -> u64 {
    ((u128::from(uniform) * u128::from(bound)) >> 64) as u64
}

/// SplitMix64 (Steele, Lea and Flood, 2014): advances `state` and returns the next number.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A probability in parts per million. An integer gives the same result on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// Probability 0.
    pub const NEVER: Self = Self(0);
    /// Probability 1.
    pub const ALWAYS: Self = Self(1_000_000);

    /// Returns a probability of `ppm` parts per million, at most [`Probability::ALWAYS`].
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        if ppm > Self::ALWAYS.0 { Self::ALWAYS } else { Self(ppm) }
    }

    /// Returns a probability of `percent` parts per hundred, at most [`Probability::ALWAYS`].
    #[must_use]
    pub const fn from_percent(percent: u32) -> Self {
        Self::from_ppm(percent.saturating_mul(10_000))
    }

    /// Returns the probability in parts per million.
    #[must_use]
    pub const fn as_ppm(self) -> u32 {
        self.0
    }
}
