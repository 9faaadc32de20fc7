//! Flush extended transport header (IBTA vol. 1, A19): how far earlier writes must have got, and
//! which of them.
//!
//! ```text
//!  31                     6   5 4   3  0
//! +------------------------+-----+------+
//! |        reserved        | SEL | PLT  |
//! +------------------------+-----+------+
//! ```

use std::fmt;

use crate::bytes::{be32, head, put};
use crate::error::{Header, ParseError};
use crate::fields::Value;

bitflags::bitflags! {
    /// PLT, the placement a FLUSH asks for; several may be asked for at once.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PlacementType: u8 {
        /// The data can be seen by the responder's processors.
        const GLOBAL_VISIBILITY = 1 << 0;
        /// The data survives a power failure.
        const PERSISTENCE = 1 << 1;
        /// Reserved bits, kept as they came.
        const _ = 0x0f;
    }
}

/// SEL, which memory a FLUSH is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectivityLevel {
    /// The range in the RETH.
    Range,
    /// The whole region of the RETH's key.
    Region,
    /// 2 or 3: not defined.
    Reserved(ReservedLevel),
}

impl SelectivityLevel {
    /// The two bits on the wire.
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

/// The selectivity levels that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReservedLevel {
    Two,
    Three,
}

/// Flush extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    /// PLT.
    pub placement: PlacementType,
    /// SEL.
    pub selectivity: SelectivityLevel,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::Feth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
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

    /// Writes the header.
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
