//! Names and lengths of the headers.
//!
//! Both the opcode table and the files of the headers use this file, so it depends on neither.
//!
//! Source: IBTA vol. 1, 9.2 to 9.3 (transport headers) and 8.3 (GRH).

crate::named_enum! {
    /// A header of a packet, named as in the specification.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub enum Header: name {
        Bth => "BTH",
        Grh => "GRH",
        XrcEth => "XRCETH",
        Deth => "DETH",
        Feth => "FETH",
        Reth => "RETH",
        AtomicEth => "AtomicETH",
        Aeth => "AETH",
        AtomicAckEth => "AtomicAckETH",
        ImmDt => "ImmDt",
        Ieth => "IETH",
    }
}

impl Header {
    /// Returns the length of the header in bytes.
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
