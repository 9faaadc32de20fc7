//! The bytes of a message: a function of its number, so that each message differs from every other
//! in nearly every byte.
//!
//! ```text
//! word i of message n = mix(mix(n) + i · 0x9e3779b97f4a7c15)  (mod 2^64, little-endian; mix is a permutation)
//! ```
//! No two words of a message are equal, so bytes at the wrong place show, and so do those of
//! another message. The last word may be cut short.

use std::fmt;

#[cfg(test)]
mod tests;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A byte that is not the message's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The message that should be there.
    pub message: u64,
    /// Offset of the first wrong byte in it.
    pub offset: usize,
    /// The byte there.
    pub found: u8,
    /// The message's byte.
    pub expected: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, offset, found, expected } = self;
        write!(
            f,
            "byte {offset} of message {message} is {found:#04x} and should be {expected:#04x}"
        )
    }
}

/// Writes message `message` over `bytes`.
pub fn fill(message: u64, bytes: &mut [u8]) {
    let mut w = mix(message);
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&mix(w).to_le_bytes());
        w = w.wrapping_add(STEP);
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&mix(w).to_le_bytes()[..rest.len()]);
}

/// Whether `bytes` are message `message`.
///
/// # Errors
/// The first byte that is not.
pub fn check(message: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    let mut w = mix(message);
    for (index, word) in bytes.chunks(8).enumerate() {
        let expected = mix(w).to_le_bytes();
        if *word != expected[..word.len()] {
            return Err(first_difference(message, index * 8, word, &expected));
        }
        w = w.wrapping_add(STEP);
    }
    Ok(())
}

#[cold]
fn first_difference(message: u64, start: usize, found: &[u8], expected: &[u8; 8]) -> Mismatch {
    let at = found.iter().zip(expected).position(|(f, e)| f != e).unwrap_or(0);
    Mismatch { message, offset: start + at, found: found[at], expected: expected[at] }
}

/// Spreads a number over 64 bits (the finalizer of splitmix64).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
