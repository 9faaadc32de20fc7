//! Fields of headers: their encoding, their values in listings, and a macro that defines headers of
//! whole bytes.

use std::fmt;

use crate::bytes::{at, put};
use crate::id::{QKey, Qpn, Rkey};

/// The value of a field, with the form in which a listing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number in decimal.
    Decimal(u64),
    /// A number in hexadecimal, and the least number of digits.
    Hex(u64, usize),
    /// A flag, shown as 0 or 1.
    Flag(bool),
    /// A word, for example the name of an opcode.
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

/// A field of whole bytes that holds a number in network order.
pub(crate) trait HeaderField {
    /// Reads the field that starts at byte `place`.
    fn read(bytes: &[u8], place: usize) -> Self;
    /// Writes the field at byte `place`.
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
    // Four bytes on the wire, of which the first is reserved.
    Qpn: u32, |v| Qpn::masked(v);
}

/// Defines a header: its struct with `LEN`, `parse` and `emit`, its `Display`, and its fields for
/// listings.
///
/// Each field has a type, an offset in bytes, and the variant of [`Value`](crate::fields::Value)
/// that shows the field.
macro_rules! header {
    ($(#[$doc:meta])* $name:ident, $text:literal {
        $(
            $(#[$field_doc:meta])*
            $field:ident: $ty:ty, $place:literal, $shown:ident $($digits:literal)?;
        )*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            /// The length of the header on the wire, in bytes.
            pub const LEN: usize = $crate::error::Header::$name.wire_len();

            /// Reads the header at the start of `bytes`.
            ///
            /// # Errors
            /// Fails with [`ParseError::ShortHeader`](crate::ParseError::ShortHeader) if `bytes` is
            /// shorter than [`LEN`](Self::LEN).
            #[inline]
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::ParseError> {
                use $crate::fields::HeaderField;
                let bytes: &[u8; Self::LEN] =
                    $crate::bytes::head(bytes, $crate::error::Header::$name)?;
                Ok(Self { $($field: HeaderField::read(bytes, $place),)* })
            }

            /// Writes the header to `buf`.
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
