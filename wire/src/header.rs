//! Names and lengths of the headers, below both the opcode table and the headers' own files, and
//! the macro that defines the headers whose fields are whole bytes.
//!
//! Source: IBTA vol. 1, 9.2 to 9.3 (transport headers) and 8.3 (GRH).

use crate::bytes::{at, put};
use crate::{QKey, Qpn, Rkey};

crate::named_enum! {
    /// A header of a packet.
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

/// A field that is a number of whole bytes in network order.
pub(crate) trait HeaderField {
    /// Reads the field at `place`.
    fn read(bytes: &[u8], place: usize) -> Self;
    /// Writes the field at `place`.
    fn write(self, bytes: &mut [u8], place: usize);
    /// Returns the field as a number.
    fn number(self) -> u64;
}

macro_rules! header_fields {
    ($($ty:ty: $int:ty, |$value:ident| $of:expr;)*) => {$(
        impl HeaderField for $ty {
            #[inline]
            fn read(bytes: &[u8], place: usize) -> Self {
                let $value = <$int>::from_be_bytes(at(bytes, place));
                $of
            }

            #[inline]
            fn write(self, bytes: &mut [u8], place: usize) {
                put(bytes, place, <$int>::from(self).to_be_bytes());
            }

            fn number(self) -> u64 {
                <$int>::from(self).into()
            }
        }
    )*};
}

header_fields! {
    u32: u32, |v| v;
    u64: u64, |v| v;
    Rkey: u32, |v| Rkey(v);
    QKey: u32, |v| QKey(v);
    // The first of four bytes is reserved.
    Qpn: u32, |v| Qpn::masked(v);
}

/// Defines a header: its struct with `LEN`, `parse` and `emit`, its line for people, and its fields
/// for listings. A field has a type, a place in bytes, and the [`Value`](crate::display::Value)
/// that shows it.
macro_rules! header {
    ($(#[$doc:meta])* $name:ident, $text:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty, $place:literal, $shown:ident $($digits:literal)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = $crate::error::Header::$name.wire_len();

            /// Reads the header at the front of `bytes`.
            ///
            /// # Errors
            /// [`ParseError::ShortHeader`](crate::ParseError::ShortHeader).
            #[inline]
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::ParseError> {
                use $crate::header::HeaderField;
                let bytes: &[u8; Self::LEN] =
                    $crate::bytes::head(bytes, $crate::error::Header::$name)?;
                Ok(Self { $($field: HeaderField::read(bytes, $place),)* })
            }

            /// Writes the header.
            #[inline]
            pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
                use $crate::header::HeaderField;
                $(self.$field.write(buf, $place);)*
            }

            /// Returns the fields with their names, for listings.
            pub(crate) fn fields(&self) -> Vec<(&'static str, $crate::display::Value)> {
                use $crate::header::HeaderField;
                vec![$((
                    stringify!($field),
                    $crate::display::Value::$shown(self.$field.number() $(, $digits)?),
                ),)*]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Self { $($field),* } = self;
                write!(f, $text)
            }
        }
    };
}
pub(crate) use header;
