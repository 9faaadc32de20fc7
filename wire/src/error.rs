//! Why bytes are not a packet: one variant a reason, and a name for each reason that counters can
//! carry.

use crate::opcode::{Opcode, OpcodeError};

pub use crate::header::Header;

/// Why bytes do not parse. A receiver drops such a packet silently (IBTA 9.6) and counts it under
/// [`ParseError::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum ParseError {
    /// Fewer bytes than a BTH and an ICRC, the least a packet can be.
    #[error("{have} bytes are less than a BTH and an ICRC (16)")]
    ShortPacket { have: usize },
    /// The bytes end inside a header.
    #[error("{header} needs {need} bytes, {have} are there")]
    ShortHeader { header: Header, need: usize, have: usize },
    /// The headers that the opcode calls for do not fit.
    #[error("{opcode} needs {need} bytes of headers and ICRC, {have} are there")]
    ShortHeaders { opcode: Opcode, need: usize, have: usize },
    /// The transport header version is not 0.
    #[error("transport header version {0}, only 0 is defined")]
    BadVersion(u8),
    /// The opcode is of Reliable Datagram.
    #[error("opcode {0:#04x} is of Reliable Datagram, which is not supported")]
    ReliableDatagram(u8),
    /// The opcode is reserved or the manufacturer's own.
    #[error("opcode {0:#04x} is not defined")]
    UnknownOpcode(u8),
    /// The length is not a multiple of four: pad and payload do not add up, whatever the pad count
    /// says.
    #[error("{have} bytes are no multiple of 4")]
    Unaligned { have: usize },
    /// The pad count is not zero in an opcode that carries no payload.
    #[error("pad count {pad} in {opcode}, which carries no payload")]
    PadWithoutPayload { opcode: Opcode, pad: u8 },
    /// The pad count claims more bytes than stand behind the headers.
    #[error("pad count {pad}, but {have} bytes behind the headers")]
    PadExceedsPayload { pad: u8, have: usize },
    /// Bytes behind the headers of an opcode that carries no payload.
    #[error("{have} bytes of payload in {opcode}, which carries none")]
    UnexpectedPayload { opcode: Opcode, have: usize },
    /// The payload of an opcode whose payload has one length has another, the pad not counted.
    #[error("{opcode} carries {need} bytes of payload, {have} are there")]
    PayloadLength { opcode: Opcode, need: usize, have: usize },
    /// More payload than the greatest path MTU, the pad not counted.
    #[error("{have} bytes of payload, the greatest path MTU is 4096")]
    PayloadTooLong { have: usize },
    /// A GRH whose IP version is not 6.
    #[error("GRH with IP version {0}, only 6 is defined")]
    BadGrhVersion(u8),
}

impl ParseError {
    /// The reasons by [`ParseError::index`], in the manner of counters' names.
    pub const NAMES: [&str; 13] = [
        "short_packet",
        "short_header",
        "short_headers",
        "bad_version",
        "reliable_datagram",
        "unknown_opcode",
        "unaligned_length",
        "pad_without_payload",
        "pad_exceeds_payload",
        "unexpected_payload",
        "payload_length",
        "payload_too_long",
        "bad_grh_version",
    ];

    /// The reason as a number below `NAMES.len()`: an index for an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::ShortPacket { .. } => 0,
            Self::ShortHeader { .. } => 1,
            Self::ShortHeaders { .. } => 2,
            Self::BadVersion(_) => 3,
            Self::ReliableDatagram(_) => 4,
            Self::UnknownOpcode(_) => 5,
            Self::Unaligned { .. } => 6,
            Self::PadWithoutPayload { .. } => 7,
            Self::PadExceedsPayload { .. } => 8,
            Self::UnexpectedPayload { .. } => 9,
            Self::PayloadLength { .. } => 10,
            Self::PayloadTooLong { .. } => 11,
            Self::BadGrhVersion(_) => 12,
        }
    }

    /// The reason's name, without the figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
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
