//! Names and lengths of the headers, below both the opcode table and the headers' own files.
//!
//! Source: IBTA vol. 1, 9.2 to 9.3 (transport headers) and 8.3 (GRH).

use std::fmt;

/// A header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Header {
    Bth,
    Grh,
    XrcEth,
    Deth,
    Feth,
    Reth,
    AtomicEth,
    Aeth,
    AtomicAckEth,
    ImmDt,
    Ieth,
}

impl Header {
    /// Returns how many bytes the header takes.
    #[must_use]
    pub const fn wire_len(self) -> usize {
        match self {
            Self::XrcEth | Self::Feth | Self::Aeth | Self::ImmDt | Self::Ieth => 4,
            Self::Deth | Self::AtomicAckEth => 8,
            Self::Bth => 12,
            Self::Reth => 16,
            Self::AtomicEth => 28,
            Self::Grh => 40,
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bth => "BTH",
            Self::Grh => "GRH",
            Self::XrcEth => "XRCETH",
            Self::Deth => "DETH",
            Self::Feth => "FETH",
            Self::Reth => "RETH",
            Self::AtomicEth => "AtomicETH",
            Self::Aeth => "AETH",
            Self::AtomicAckEth => "AtomicAckETH",
            Self::ImmDt => "ImmDt",
            Self::Ieth => "IETH",
        })
    }
}
