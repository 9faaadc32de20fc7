//! The fields of headers: how they stand on the wire, how listings show them, and the macro that
//! defines the headers whose fields are whole bytes.

use std::fmt;

use crate::bytes::{at, put};
use crate::id::{QKey, Qpn, Rkey};

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number best read in decimal.
    Decimal(u64),
    /// A number best read in hexadecimal, with so many digits.
    Hex(u64, usize),
    /// A flag.
    Flag(bool),
    /// A word, such as an opcode's name.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Decimal(v) => write!(f, "{v}"),
            Self::Hex(v, digits) => write!(f, "0x{v:0digits$x}"),
            Self::Flag(v) => write!(f, "{}", u8::from(v)),
            Self::Word(v) => f.write_str(v),
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
/// for listings. A field has a type, a place in bytes, and the [`Value`](crate::fields::Value)
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
                use $crate::fields::HeaderField;
                let bytes: &[u8; Self::LEN] =
                    $crate::bytes::head(bytes, $crate::error::Header::$name)?;
                Ok(Self { $($field: HeaderField::read(bytes, $place),)* })
            }

            /// Writes the header.
            #[inline]
            pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
                use $crate::fields::HeaderField;
                $(self.$field.write(buf, $place);)*
            }

            /// Returns the fields with their names, for listings.
            pub(crate) fn fields(&self) -> Vec<(&'static str, $crate::fields::Value)> {
                use $crate::fields::HeaderField;
                vec![$((
                    stringify!($field),
                    $crate::fields::Value::$shown(self.$field.number() $(, $digits)?),
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
