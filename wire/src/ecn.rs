//! The explicit congestion notification bits of a traffic class (RFC 3168, section 5).

const MASK: u8 = 0b11;
/// ECT(0): the sender reacts to congestion marks.
const ECT_0: u8 = 0b10;
/// CE: a router on the path experienced congestion.
pub const CE: u8 = 0b11;

/// Returns `traffic_class` with ECT(0) set. Bits that the program chose itself stay unchanged.
#[must_use]
#[inline]
pub const fn capable(traffic_class: u8) -> u8 {
    if traffic_class & MASK == 0 { traffic_class | ECT_0 } else { traffic_class }
}

/// Returns whether a router may mark packets of this traffic class.
#[must_use]
#[inline]
pub const fn is_capable(traffic_class: u8) -> bool {
    traffic_class & MASK != 0
}

/// Returns whether a router marked the packet.
#[must_use]
#[inline]
pub const fn is_marked(traffic_class: u8) -> bool {
    traffic_class & MASK == CE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_a_traffic_class() {
        for (given, sent) in [(0, 2), (0xb8, 0xba), (1, 1), (2, 2), (3, 3)] {
            assert_eq!(capable(given), sent, "{given:#x}");
            assert!(is_capable(sent));
        }
        assert!(!is_capable(0xfc));
        assert!(is_marked(0xbb) && !is_marked(0xba) && !is_marked(1));
    }
}
