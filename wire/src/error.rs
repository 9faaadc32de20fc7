//! The reasons why bytes are not a packet, each with a name for counters.

use crate::opcode::{Opcode, OpcodeError};

pub use crate::header::Header;

/// Defines an error enum in which every variant states the name of its counter.
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
            /// The counter names of all reasons, in the order of `index`.
            pub const NAMES: [&str; [$($text),*].len()] = [$($text),*];

            /// Returns the position of the reason in `NAMES`, for use as an index into an array of
            /// counters.
            #[must_use]
            pub const fn index(self) -> usize {
                enum Index {
                    $($variant,)*
                }
                match self {
                    $(Self::$variant { .. } => Index::$variant as usize,)*
                }
            }

            /// Returns the counter name of the reason.
            #[must_use]
            pub const fn name(self) -> &'static str {
                Self::NAMES[self.index()]
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// The reason why bytes do not parse as a packet.
    ///
    /// A receiver silently drops such a packet (IBTA 9.6) and counts it under [`ParseError::name`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum ParseError {
        /// There are fewer bytes than a BTH and an ICRC need.
        #[error("a packet of {have} bytes is shorter than a BTH and an ICRC (16 bytes)")]
        ShortPacket { have: usize } = "short_packet",
        /// The bytes end within a header.
        #[error("{header} needs {need} bytes, but there are {have}")]
        ShortHeader { header: Header, need: usize, have: usize } = "short_header",
        /// The headers that the opcode requires do not fit.
        #[error("{opcode} needs {need} bytes for headers and ICRC, but there are {have}")]
        ShortHeaders { opcode: Opcode, need: usize, have: usize } = "short_headers",
        /// The transport header version is not 0.
        #[error("transport header version {0} is not defined, only 0 is")]
        BadVersion(u8) = "bad_version",
        /// The opcode belongs to Reliable Datagram.
        #[error("opcode {0:#04x} belongs to Reliable Datagram, which is not supported")]
        ReliableDatagram(u8) = "reliable_datagram",
        /// The opcode is reserved or manufacturer-defined.
        #[error("opcode {0:#04x} is not defined")]
        UnknownOpcode(u8) = "unknown_opcode",
        /// The length is not a multiple of four, so payload and pad count cannot agree.
        #[error("a length of {have} bytes is not a multiple of 4")]
        Unaligned { have: usize } = "unaligned_length",
        /// The pad count is not zero, although the opcode carries no payload.
        #[error("pad count {pad} in {opcode}, which carries no payload")]
        PadWithoutPayload { opcode: Opcode, pad: u8 } = "pad_without_payload",
        /// The pad count is larger than the number of bytes after the headers.
        #[error("pad count {pad} exceeds the {have} bytes after the headers")]
        PadExceedsPayload { pad: u8, have: usize } = "pad_exceeds_payload",
        /// Bytes follow the headers, although the opcode carries no payload.
        #[error("{have} bytes of payload in {opcode}, which carries none")]
        UnexpectedPayload { opcode: Opcode, have: usize } = "unexpected_payload",
        /// The payload does not have the fixed length of its opcode. The pad does not count.
        #[error("{opcode} carries {need} bytes of payload, but there are {have}")]
        PayloadLength { opcode: Opcode, need: usize, have: usize } = "payload_length",
        /// The payload exceeds the largest path MTU. The pad does not count.
        #[error("a payload of {have} bytes exceeds the largest path MTU of 4096 bytes")]
        PayloadTooLong { have: usize } = "payload_too_long",
        /// The IP version in a GRH is not 6.
        #[error("IP version {0} in a GRH is not defined, only 6 is")]
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

/// The reason why a packet cannot be emitted. The caller caused it, never a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum EmitError {
    /// The buffer is too small.
    #[error("the packet needs {need} bytes, the buffer has {have}")]
    BufferTooSmall { need: usize, have: usize },
    /// The extension headers do not match the opcode.
    #[error("the extension headers do not match {opcode}")]
    HeadersMismatch { opcode: Opcode },
    /// The opcode does not allow a payload of this length.
    #[error("{opcode} does not allow a payload of {have} bytes")]
    PayloadLength { opcode: Opcode, have: usize },
}
