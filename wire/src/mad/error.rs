//! Why bytes are not a MAD of communication management: one variant a reason, with a counter's
//! name.

use super::header::Attribute;

/// Why bytes are not a MAD of communication management. Who receives such a MAD drops it and counts
/// it under [`MadError::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum MadError {
    /// Not 256 bytes.
    #[error("{have} bytes, a MAD has 256")]
    Length { have: usize },
    /// The base version is not 1.
    #[error("MAD base version {0}, only 1 is defined")]
    BaseVersion(u8),
    /// The management class is another.
    #[error("management class {0:#04x}, communication management is 0x07")]
    Class(u8),
    /// The class version is not 2.
    #[error("version {0} of communication management, only 2 is supported")]
    ClassVersion(u8),
    /// The method is not Send.
    #[error("method {0:#04x}, communication management only has Send (0x03)")]
    Method(u8),
    /// The attribute is no message of communication management.
    #[error("attribute {0:#06x} is no message of communication management")]
    Attribute(u16),
    /// Additional information that claims more bytes than there is room for.
    #[error("{attribute} claims {have} bytes of additional information, there is room for 72")]
    InfoLength { attribute: Attribute, have: u8 },
}

impl MadError {
    /// The reasons by [`MadError::index`], in the manner of counters' names.
    pub const NAMES: [&str; 7] = [
        "mad_length",
        "mad_base_version",
        "mad_class",
        "mad_class_version",
        "mad_method",
        "mad_attribute",
        "mad_info_length",
    ];

    /// The reason as a number below `NAMES.len()`: an index for an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Length { .. } => 0,
            Self::BaseVersion(_) => 1,
            Self::Class(_) => 2,
            Self::ClassVersion(_) => 3,
            Self::Method(_) => 4,
            Self::Attribute(_) => 5,
            Self::InfoLength { .. } => 6,
        }
    }

    /// The reason's name, without the figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}
