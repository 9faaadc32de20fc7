//! The MAD header, the attribute ids of the connection manager's messages, and the reasons why
//! bytes are not such a MAD.

use std::fmt;

use super::id::TransactionId;
use super::{BASE_VERSION, CM_CLASS, CM_CLASS_VERSION, MAD_LEN, METHOD_SEND};
use crate::bytes::{be16, be32, be64, put};
use crate::error::reasons;

crate::named_enum! {
    /// The message type of a MAD of the connection manager (IBTA table 105).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u16)]
    pub enum Attribute: name, id -> u16, from_id(u16) {
        /// Request for communication.
        Req = 0x10 => "REQ",
        /// Message receipt acknowledgement: the reply takes longer.
        Mra = 0x11 => "MRA",
        /// Reject.
        Rej = 0x12 => "REJ",
        /// Reply to a REQ.
        Rep = 0x13 => "REP",
        /// Ready to use.
        Rtu = 0x14 => "RTU",
        /// Disconnect request.
        Dreq = 0x15 => "DREQ",
        /// Disconnect reply.
        Drep = 0x16 => "DREP",
        /// Service id resolution request, for the queue pair of a datagram service.
        SidrReq = 0x17 => "SIDR_REQ",
        /// Service id resolution reply.
        SidrRep = 0x18 => "SIDR_REP",
        /// Load alternate path.
        Lap = 0x19 => "LAP",
        /// Alternate path response.
        Apr = 0x1a => "APR",
    }
}

reasons! {
    /// The reason why bytes are not a MAD of the connection manager.
    ///
    /// A receiver drops such a MAD and counts it under [`MadError::name`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum MadError {
        /// The length is not 256 bytes.
        #[error("a MAD has 256 bytes, but there are {have}")]
        Length { have: usize } = "mad_length",
        /// The base version is not 1.
        #[error("MAD base version {0} is not defined, only 1 is")]
        BaseVersion(u8) = "mad_base_version",
        /// The management class is not communication management.
        #[error("management class {0:#04x} is not communication management (0x07)")]
        Class(u8) = "mad_class",
        /// The class version is not 2.
        #[error("class version {0} of communication management is not supported, only 2 is")]
        ClassVersion(u8) = "mad_class_version",
        /// The method is not Send.
        #[error("method {0:#04x} is not Send (0x03), the only one of communication management")]
        Method(u8) = "mad_method",
        /// The attribute is not a message of communication management.
        #[error("attribute {0:#06x} is not a message of communication management")]
        Attribute(u16) = "mad_attribute",
        /// The stated length of additional information exceeds the space in the message.
        #[error("{attribute} states {have} bytes of additional information, at most 72 fit")]
        InfoLength { attribute: Attribute, have: u8 } = "mad_info_length",
    }
}

/// The header of a MAD of the connection manager (IBTA vol. 1, 13.4.3), 24 bytes.
///
/// ```text
///  0        1        2        3        4        6        8                       16
/// +--------+--------+--------+--------+--------+--------+-----------------------+
/// | base   | class  | class  | method | status | class- | transaction id        |
/// | version|        | version|        |        |specific|                       |
/// +--------+--------+--------+--------+--------+--------+-----------------------+
/// | attribute id    | reserved        | attribute modifier      |
/// +-----------------+-----------------+-------------------------+
/// 16                18                20                        24
/// ```
///
/// [`MadHeader::parse`] checks versions, class and method. The struct does not store these, because
/// they are constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadHeader {
    /// Status. The connection manager sends 0.
    pub status: u16,
    /// Class-specific field. The connection manager sends 0.
    pub class_specific: u16,
    /// Transaction id, which a reply repeats.
    pub tid: TransactionId,
    /// The message type.
    pub attribute: Attribute,
    /// Options of enhanced connection establishment in a REQ or REP, otherwise 0.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// The length of the header on the wire, in bytes.
    pub const LEN: usize = 24;

    /// Returns the header of a message of this type, as the connection manager sends it.
    #[must_use]
    pub const fn new(attribute: Attribute, tid: TransactionId) -> Self {
        Self { status: 0, class_specific: 0, tid, attribute, attribute_modifier: 0 }
    }

    /// Reads the header of a whole MAD.
    ///
    /// # Errors
    /// Fails with [`MadError`] in these cases:
    ///
    /// - `mad` does not have 256 bytes.
    /// - A version, the class or the method is not supported.
    /// - The attribute is not a message of communication management.
    pub fn parse(mad: &[u8]) -> Result<Self, MadError> {
        let b: &[u8; MAD_LEN] = mad.try_into().map_err(|_| MadError::Length { have: mad.len() })?;
        if b[0] != BASE_VERSION {
            return Err(MadError::BaseVersion(b[0]));
        }
        if b[1] != CM_CLASS {
            return Err(MadError::Class(b[1]));
        }
        if b[2] != CM_CLASS_VERSION {
            return Err(MadError::ClassVersion(b[2]));
        }
        if b[3] != METHOD_SEND {
            return Err(MadError::Method(b[3]));
        }
        let id = be16(b, 16);
        let attribute = Attribute::from_id(id).ok_or(MadError::Attribute(id))?;
        Ok(Self {
            status: be16(b, 4),
            class_specific: be16(b, 6),
            tid: TransactionId(be64(b, 8)),
            attribute,
            attribute_modifier: be32(b, 20),
        })
    }

    /// Writes the header to `buf`.
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, [BASE_VERSION, CM_CLASS, CM_CLASS_VERSION, METHOD_SEND]);
        put(buf, 4, self.status.to_be_bytes());
        put(buf, 6, self.class_specific.to_be_bytes());
        put(buf, 8, self.tid.0.to_be_bytes());
        put(buf, 16, self.attribute.id().to_be_bytes());
        put(buf, 18, [0; 2]);
        put(buf, 20, self.attribute_modifier.to_be_bytes());
    }
}

impl fmt::Display for MadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tid {}", self.attribute, self.tid)
    }
}
