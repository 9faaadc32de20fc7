//! Flush extended transport header (IBTA vol. 1, A19).

use std::fmt;

use crate::bytes::{be32, head, put};
use crate::error::{Header, ParseError};
use crate::fields::Value;

bitflags::bitflags! {
    /// PLT, the requested placement of a FLUSH. A FLUSH may request several placements.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PlacementType: u8 {
        /// The responder's processors can see the data.
        const GLOBAL_VISIBILITY = 1 << 0;
        /// The data survives a power failure.
        const PERSISTENCE = 1 << 1;
        /// Reserved bits, kept unchanged.
        const _ = 0x0f;
    }
}

/// SEL, the memory that a FLUSH covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectivityLevel {
    /// The address range in the RETH.
    Range,
    /// The whole memory region of the key in the RETH.
    Region,
    /// An undefined level, 2 or 3.
    Reserved(ReservedLevel),
}

impl SelectivityLevel {
    /// Returns the two bits on the wire.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::Range => 0,
            Self::Region => 1,
            Self::Reserved(ReservedLevel::Two) => 2,
            Self::Reserved(ReservedLevel::Three) => 3,
        }
    }
}

/// The selectivity levels without a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReservedLevel {
    Two,
    Three,
}

/// Flush extended transport header (IBTA vol. 1, A19): the placement that earlier writes must
/// reach, and the memory that this concerns.
///
/// ```text
///  31                     6   5 4   3  0
/// +------------------------+-----+------+
/// |        reserved        | SEL | PLT  |
/// +------------------------+-----+------+
/// ```
///
/// ```
/// use urxe_wire::{Feth, PlacementType, SelectivityLevel};
///
/// // All memory of the key, until it survives a power failure.
/// let (placement, selectivity) = (PlacementType::PERSISTENCE, SelectivityLevel::Region);
/// let header = Feth { placement, selectivity };
/// let mut bytes = [0; Feth::LEN];
/// header.emit(&mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 0x12]);
/// assert_eq!(Feth::parse(&bytes)?, header);
/// # Ok::<(), urxe_wire::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feth {
    /// Placement type.
    pub placement: PlacementType,
    /// Selectivity level.
    pub selectivity: SelectivityLevel,
}

impl Feth {
    /// The length of the header on the wire, in bytes.
    pub const LEN: usize = Header::Feth.wire_len();

    /// Reads the header at the start of `bytes`. Reserved bits are ignored.
    ///
    /// # Errors
    /// Fails with [`ParseError::ShortHeader`] if `bytes` is shorter than [`LEN`](Self::LEN).
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::Feth)?;
        let word = be32(b, 0);
        Ok(Self {
            placement: PlacementType::from_bits_retain((word & 0x0f) as u8),
            selectivity: match (word >> 4) & 3 {
                0 => SelectivityLevel::Range,
                1 => SelectivityLevel::Region,
                2 => SelectivityLevel::Reserved(ReservedLevel::Two),
                _ => SelectivityLevel::Reserved(ReservedLevel::Three),
            },
        })
    }

    /// Writes the header to `buf`.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, [0, 0, 0, self.selectivity.level() << 4 | (self.placement.bits() & 0x0f)]);
    }

    /// Returns the fields with their names, for listings.
    pub(crate) fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("placement", Value::Hex(self.placement.bits().into(), 1)),
            ("selectivity", Value::Decimal(self.selectivity.level().into())),
        ]
    }
}

impl fmt::Display for Feth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plt 0x{:x} sel {:?}", self.placement.bits(), self.selectivity)
    }
}
