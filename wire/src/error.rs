//! Why bytes are not a packet: one variant a reason, and a name for each reason that counters can
//! carry.

use crate::opcode::{Opcode, OpcodeError};

pub use crate::header::Header;

/// Defines an error with a name for each reason, by which counters know it.
macro_rules! reasons {
    ($(#[$meta:meta])* pub enum $name:ident {
        $(
            $(#[$doc:meta])*
            $variant:ident $({ $($field:ident: $type:ty),* })? $(($inner:ty))? = $text:literal,
        )*
    }) => {
        $(#[$meta])*
        #[allow(missing_docs)] // the messages name the fields
        pub enum $name {
            $($(#[$doc])* $variant $({ $($field: $type),* })? $(($inner))?,)*
        }

        impl $name {
            /// The reasons by `index`, in the manner of counters' names.
            pub const NAMES: [&str; [$($text),*].len()] = [$($text),*];

            /// The reason as a number below `NAMES.len()`: an index for an array of counters.
            #[must_use]
            pub const fn index(self) -> usize {
                enum Index {
                    $($variant,)*
                }
                match self {
                    $(Self::$variant { .. } => Index::$variant as usize,)*
                }
            }

            /// The reason's name, without the figures.
            #[must_use]
            pub const fn name(self) -> &'static str {
                Self::NAMES[self.index()]
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why bytes do not parse. A receiver drops such a packet silently (IBTA 9.6) and counts it
    /// under [`ParseError::name`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum ParseError {
        /// Fewer bytes than a BTH and an ICRC, the least a packet can be.
        #[error("{have} bytes are less than a BTH and an ICRC (16)")]
        ShortPacket { have: usize } = "short_packet",
        /// The bytes end inside a header.
        #[error("{header} needs {need} bytes, {have} are there")]
        ShortHeader { header: Header, need: usize, have: usize } = "short_header",
        /// The headers that the opcode calls for do not fit.
        #[error("{opcode} needs {need} bytes of headers and ICRC, {have} are there")]
        ShortHeaders { opcode: Opcode, need: usize, have: usize } = "short_headers",
        /// The transport header version is not 0.
        #[error("transport header version {0}, only 0 is defined")]
        BadVersion(u8) = "bad_version",
        /// The opcode is of Reliable Datagram.
        #[error("opcode {0:#04x} is of Reliable Datagram, which is not supported")]
        ReliableDatagram(u8) = "reliable_datagram",
        /// The opcode is reserved or the manufacturer's own.
        #[error("opcode {0:#04x} is not defined")]
        UnknownOpcode(u8) = "unknown_opcode",
        /// The length is not a multiple of four: pad and payload do not add up, whatever the pad
        /// count says.
        #[error("{have} bytes are no multiple of 4")]
        Unaligned { have: usize } = "unaligned_length",
        /// The pad count is not zero in an opcode that carries no payload.
        #[error("pad count {pad} in {opcode}, which carries no payload")]
        PadWithoutPayload { opcode: Opcode, pad: u8 } = "pad_without_payload",
        /// The pad count claims more bytes than stand behind the headers.
        #[error("pad count {pad}, but {have} bytes behind the headers")]
        PadExceedsPayload { pad: u8, have: usize } = "pad_exceeds_payload",
        /// Bytes behind the headers of an opcode that carries no payload.
        #[error("{have} bytes of payload in {opcode}, which carries none")]
        UnexpectedPayload { opcode: Opcode, have: usize } = "unexpected_payload",
        /// The payload of an opcode whose payload has one length has another, the pad not counted.
        #[error("{opcode} carries {need} bytes of payload, {have} are there")]
        PayloadLength { opcode: Opcode, need: usize, have: usize } = "payload_length",
        /// More payload than the greatest path MTU, the pad not counted.
        #[error("{have} bytes of payload, the greatest path MTU is 4096")]
        PayloadTooLong { have: usize } = "payload_too_long",
        /// A GRH whose IP version is not 6.
        #[error("GRH with IP version {0}, only 6 is defined")]
        BadGrhVersion(u8) = "bad_grh_version",
    }
}

impl From<OpcodeError> for ParseError {
    fn from(e: OpcodeError) -> Self {
        match e {
            OpcodeError::ReliableDatagram(byte) => Self::ReliableDatagram(byte),
            OpcodeError::Unknown(byte) => Self::UnknownOpcode(byte),
        }
    }
}

/// Why a packet cannot be written. Both are the caller's doing, never the network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum EmitError {
    /// The buffer is too small.
    #[error("the packet needs {need} bytes, the buffer has {have}")]
    BufferTooSmall { need: usize, have: usize },
    /// The extension headers are not those of the opcode.
    #[error("the extension headers are not those of {opcode}")]
    HeadersMismatch { opcode: Opcode },
    /// The payload's length is not one the opcode allows.
    #[error("{have} bytes of payload do not go with {opcode}")]
    PayloadLength { opcode: Opcode, have: usize },
}
