//! The bytes of the messages: the same in each, none of them 0, so that what has not arrived shows.

/// A message of `size` bytes.
pub fn message(size: usize) -> Vec<u8> {
    // Weyl's sequence, of whose products the upper bits look random: neighbours differ, and no
    // period fits a packet.
    (0..size as u64).map(|at| ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8) | 1).collect()
}

/// The first difference: offset, found, expected.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<(usize, u8, u8)> {
    if found == expected {
        return None;
    }
    let pairs = found.iter().zip(expected).enumerate();
    pairs
        .map(|(at, (found, expected))| (at, *found, *expected))
        .find(|(_, found, expected)| found != expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_zero_and_shifted_packets_differ() {
        let bytes = message(3 * 4096);
        assert!(!bytes.contains(&0));
        assert_ne!(bytes[..4096], bytes[4096..8192]);
        assert_ne!(bytes[..256], bytes[256..512]);
    }

    #[test]
    fn the_first_difference_is_told() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(difference(&[1, 0, 0], &[1, 2, 3]), Some((1, 0, 2)));
    }
}
