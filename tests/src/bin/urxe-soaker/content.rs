//! The bytes of messages and of the memory that peers read.
//!
//! ```text
//! word i of content k = mix(k + i · 0x9e3779b97f4a7c15)   (mod 2^64, little-endian)
//! ```
//! `mix` is a permutation. So the words of one content differ, and a byte at a wrong place or of
//! another message shows.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// The bytes of a word.
pub const WORD: usize = 8;

/// Returns the content of message `number` of a lane.
pub fn key(lane: u64, number: u32) -> u64 {
    mix(mix(lane).wrapping_add(number.into()))
}

/// Returns the length of a message, at most `max`. Each power of two is equally likely, and so is
/// an empty message.
pub fn length(key: u64, max: usize) -> usize {
    let choice = mix(key ^ STEP);
    let sizes = u64::from(max.ilog2()) + 2;
    match choice % sizes {
        0 => 0,
        size => 1 + (choice / sizes % (1 << (size - 1))) as usize,
    }
    .min(max)
}

/// Writes a content over `bytes`, from its word `first` on.
pub fn fill(key: u64, first: usize, bytes: &mut [u8]) {
    let mut word = key.wrapping_add(STEP.wrapping_mul(first as u64));
    for place in bytes.chunks_mut(WORD) {
        place.copy_from_slice(&mix(word).to_le_bytes()[..place.len()]);
        word = word.wrapping_add(STEP);
    }
}

/// Spreads a number over 64 bits (the finalizer of splitmix64).
pub fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_reach_from_0_to_the_maximum() {
        for max in [4096, 4 << 20] {
            let lengths: Vec<usize> =
                (0..200_000).map(|number| length(key(1, number), max)).collect();
            assert_eq!(lengths.iter().min(), Some(&0));
            assert!(lengths.iter().all(|&length| length <= max));
            assert!(lengths.iter().any(|&length| length > max - max / 64));
        }
        let all = (0..u32::MAX).map(|number| length(key(1, number), 4));
        let seen: std::collections::BTreeSet<usize> = all.take(1000).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_part_of_a_content_is_that_part_of_the_whole() {
        let (mut whole, mut part) = (vec![0; 4096], vec![0; 100]);
        fill(7, 0, &mut whole);
        fill(7, 64, &mut part);
        assert_eq!(whole[64 * WORD..][..100], part);
        fill(8, 64, &mut part);
        assert_ne!(whole[64 * WORD..][..100], part);
    }
}
