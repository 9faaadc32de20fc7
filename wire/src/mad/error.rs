//! Why bytes are not a MAD of communication management: one variant a reason, with a counter's
//! name.

use super::header::Attribute;
use crate::error::reasons;

reasons! {
    /// Why bytes are not a MAD of communication management. Who receives such a MAD drops it and
    /// counts it under [`MadError::name`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum MadError {
        /// Not 256 bytes.
        #[error("{have} bytes, a MAD has 256")]
        Length { have: usize } = "mad_length",
        /// The base version is not 1.
        #[error("MAD base version {0}, only 1 is defined")]
        BaseVersion(u8) = "mad_base_version",
        /// The management class is another.
        #[error("management class {0:#04x}, communication management is 0x07")]
        Class(u8) = "mad_class",
        /// The class version is not 2.
        #[error("version {0} of communication management, only 2 is supported")]
        ClassVersion(u8) = "mad_class_version",
        /// The method is not Send.
        #[error("method {0:#04x}, communication management only has Send (0x03)")]
        Method(u8) = "mad_method",
        /// The attribute is no message of communication management.
        #[error("attribute {0:#06x} is no message of communication management")]
        Attribute(u16) = "mad_attribute",
        /// Additional information that claims more bytes than there is room for.
        #[error("{attribute} claims {have} bytes of additional information, there is room for 72")]
        InfoLength { attribute: Attribute, have: u8 } = "mad_info_length",
    }
}
