//! Explicit congestion notification in the two low bits of a traffic class (RFC 3168, 5).

const MASK: u8 = 0b11;
/// ECT(0): the sender reacts to marks.
const ECT_0: u8 = 0b10;
/// CE: a router on the way experienced congestion.
pub const CE: u8 = 0b11;

/// Returns `traffic_class` with ECT(0), unless the program chose these bits itself.
#[must_use]
#[inline]
pub const fn capable(traffic_class: u8) -> u8 {
    if traffic_class & MASK == 0 { traffic_class | ECT_0 } else { traffic_class }
}

/// Whether a router may mark packets of this traffic class.
#[must_use]
#[inline]
pub const fn is_capable(traffic_class: u8) -> bool {
    traffic_class & MASK != 0
}

/// Whether a router marked packets of this traffic class.
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
