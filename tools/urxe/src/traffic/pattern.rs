//! The bytes of a message, and the comparison of received bytes with them.
//!
//! The bytes are a function of the message's number, so messages differ in nearly every byte.
//!
//! ```text
//! word i of message n = mix(mix(n) + i · 0x9e3779b97f4a7c15)
//!                       (mod 2^64, little-endian; mix is a permutation)
//! ```
//! No two words of a message are equal. The comparison therefore detects bytes at a wrong offset
//! and bytes of another message. The last word may be truncated.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A byte that differs from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of message {message} is {found:#04x} and should be {expected:#04x}")]
pub struct Mismatch {
    /// The expected message.
    pub message: u64,
    /// Offset of the first wrong byte in the message.
    pub offset: usize,
    /// The received byte.
    pub found: u8,
    /// The expected byte.
    pub expected: u8,
}

/// Writes message `message` over `bytes`.
pub fn fill(message: u64, bytes: &mut [u8]) {
    let mut w = mix(message);
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&mix(w).to_le_bytes()[..word.len()]);
        w = w.wrapping_add(STEP);
    }
}

/// Compares `bytes` with message `message`.
///
/// # Errors
/// The first byte that differs.
pub fn check(message: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    let mut expected = vec![0; bytes.len()];
    fill(message, &mut expected);
    compare(message, bytes, &expected)
}

/// Checks that the bytes received as message `message` are the expected ones.
///
/// # Errors
/// The first byte that differs.
pub fn compare(message: u64, found: &[u8], expected: &[u8]) -> Result<(), Mismatch> {
    match difference(found, expected) {
        None => Ok(()),
        Some((offset, found, expected)) => Err(Mismatch { message, offset, found, expected }),
    }
}

/// Returns the first difference: offset, found, expected.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<(usize, u8, u8)> {
    if found == expected {
        return None;
    }
    let mut pairs = found.iter().zip(expected).enumerate();
    let (at, (found, expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
    Some((at, *found, *expected))
}

/// Returns `size` bytes without a zero, so that missing data in zeroed memory is detected.
pub fn without_zeros(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fill(0, &mut bytes);
    bytes.iter_mut().for_each(|byte| *byte |= 1);
    bytes
}

/// Spreads a number over 64 bits (the finalizer of splitmix64).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xa5; len];
        fill(number, &mut bytes);
        bytes
    }

    #[test]
    fn a_message_is_itself_at_every_length() {
        for len in 0..40 {
            assert_eq!(check(7, &message(7, len)), Ok(()), "{len}");
        }
    }

    #[test]
    fn each_wrong_byte_is_found() {
        for len in [1, 7, 8, 9, 64, 131] {
            let right = message(3, len);
            for offset in 0..len {
                let mut wrong = right.clone();
                wrong[offset] ^= 0x10;
                let found =
                    Mismatch { message: 3, offset, found: wrong[offset], expected: right[offset] };
                assert_eq!(check(3, &wrong), Err(found));
            }
        }
    }

    #[test]
    fn other_messages_and_shifted_ones_differ() {
        let this = message(5, 4096);
        for number in (0..300).filter(|number| *number != 5) {
            assert!(check(number, &this).is_err(), "{number}");
            let same = this.iter().zip(message(number, 4096)).filter(|(a, b)| *a == b).count();
            assert!(same < 100, "{same} of 4096 bytes are those of message {number}");
        }
        for shift in [1, 8, 256, 1024, 2048] {
            assert!(check(5, &this[shift..]).is_err(), "{shift}");
        }
    }

    #[test]
    fn no_byte_is_zero_and_shifted_packets_differ() {
        let bytes = without_zeros(3 * 4096);
        assert!(!bytes.contains(&0));
        assert_ne!(bytes[..4096], bytes[4096..8192]);
        assert_ne!(bytes[..256], bytes[256..512]);
    }

    #[test]
    fn the_first_difference_is_returned() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(difference(&[1, 0, 0], &[1, 2, 3]), Some((1, 0, 2)));
    }
}
