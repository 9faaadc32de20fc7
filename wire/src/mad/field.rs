//! The field types of messages. Each type reads and writes itself at a bit offset of the message.
//! Bit 0 is the most significant bit of byte 0.

use std::fmt;

use super::code::{Answered, ApStatus, RejReason, SidrStatus, TransportType};
use super::id::{CommId, Guid, ServiceId};
use super::{Attribute, MESSAGE_LEN, MadError};
use crate::fields::Value;
use crate::{Gid, PKey, Psn, QKey, Qpn};

/// The bytes after the header of a MAD.
pub(super) type Body = [u8; MESSAGE_LEN];

/// A field of a message.
pub(super) trait Field: Sized {
    /// Reads the field that starts at `bit`.
    fn read(attribute: Attribute, body: &Body, bit: usize) -> Result<Self, MadError>;
    /// Writes the field at `bit`. The bits must be zero.
    fn write(&self, body: &mut Body, bit: usize);
    /// Returns the value for listings.
    fn display_value(&self) -> MadValue<'_>;
}

/// The value of a field, with the form in which a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadValue<'a> {
    /// A number, a flag or a word.
    Plain(Value),
    /// A text: a GID, a service id or a reason.
    Text(String),
    /// All bytes of private data or additional information.
    Bytes(&'a [u8]),
}

/// Returns the `width` bits at `bit`: at most 64 bits, in at most nine bytes.
fn get(body: &Body, bit: usize, width: usize) -> u64 {
    let mut value = 0_u128;
    let last = (bit + width - 1) / 8;
    for &byte in &body[bit / 8..=last] {
        value = value << 8 | u128::from(byte);
    }
    let below = (last + 1) * 8 - (bit + width);
    (value >> below) as u64 & (u64::MAX >> (64 - width))
}

/// Writes `width` bits at `bit`. The bits must be zero.
fn put(body: &mut Body, bit: usize, width: usize, value: u64) {
    let last = (bit + width - 1) / 8;
    let below = (last + 1) * 8 - (bit + width);
    let mut value = u128::from(value) << below;
    for byte in body[bit / 8..=last].iter_mut().rev() {
        *byte |= value as u8;
        value >>= 8;
    }
}

/// A number of `WIDTH` bits, at most 32. Every value of this type can be emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bits<const WIDTH: usize>(u32);

impl<const WIDTH: usize> Bits<WIDTH> {
    /// The largest value.
    pub const MAX: Self = Self(u32::MAX >> (32 - WIDTH));

    /// Returns the number, or `None` if the number does not fit.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value > Self::MAX.0 { None } else { Some(Self(value)) }
    }

    /// Returns the lowest `WIDTH` bits of a number.
    #[must_use]
    pub const fn masked(value: u32) -> Self {
        Self(value & Self::MAX.0)
    }

    /// Returns the number.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl<const WIDTH: usize> fmt::Display for Bits<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A 24-bit number whose bytes are at offsets 0, 4 and 8: the vendor id of enhanced connection
/// establishment in a REP, which uses reserved bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpreadVendorId(pub Bits<24>);

/// Private data of a message. The wire format has no length for private data, so zeros fill the
/// rest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const LEN: usize>([u8; LEN]);

/// The error for private data that exceeds the space in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{have} bytes of private data exceed the {max} bytes of the message")]
pub struct PrivateDataTooLong {
    /// Number of given bytes.
    pub have: usize,
    /// Number of bytes that fit.
    pub max: usize,
}

impl<const LEN: usize> PrivateData<LEN> {
    /// No private data: all zeros.
    pub const NONE: Self = Self([0; LEN]);

    /// Returns `data`, filled up with zeros.
    ///
    /// # Errors
    /// Fails with [`PrivateDataTooLong`] if `data` has more than `LEN` bytes.
    pub fn new(data: &[u8]) -> Result<Self, PrivateDataTooLong> {
        let mut bytes = [0; LEN];
        match bytes.get_mut(..data.len()) {
            Some(room) => room.copy_from_slice(data),
            None => return Err(PrivateDataTooLong { have: data.len(), max: LEN }),
        }
        Ok(Self(bytes))
    }

    /// Returns all bytes, including the zeros that fill up the data.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl<const LEN: usize> Default for PrivateData<LEN> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<const LEN: usize> fmt::Debug for PrivateData<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        write!(f, "PrivateData<{LEN}>({:02x?} and zeros)", &self.0[..end])
    }
}

/// Length of valid additional information in bytes, at most [`InfoLength::MAX`]. The field has
/// `WIDTH` bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoLength<const WIDTH: usize>(u8);

impl<const WIDTH: usize> InfoLength<WIDTH> {
    /// The largest length in bytes.
    pub const MAX: u8 = 72;

    /// No additional information.
    pub const ZERO: Self = Self(0);

    /// Returns the length, or `None` if `len` exceeds [`InfoLength::MAX`].
    #[must_use]
    pub const fn new(len: u8) -> Option<Self> {
        if len > Self::MAX { None } else { Some(Self(len)) }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }
}

impl<const WIDTH: usize> Field for InfoLength<WIDTH> {
    fn read(attribute: Attribute, body: &Body, bit: usize) -> Result<Self, MadError> {
        let have = get(body, bit, WIDTH) as u8;
        Self::new(have).ok_or(MadError::InfoLength { attribute, have })
    }

    fn write(&self, body: &mut Body, bit: usize) {
        put(body, bit, WIDTH, self.0.into());
    }

    fn display_value(&self) -> MadValue<'_> {
        MadValue::Plain(Value::Decimal(self.0.into()))
    }
}

impl<const LEN: usize> Field for PrivateData<LEN> {
    fn read(_: Attribute, body: &Body, bit: usize) -> Result<Self, MadError> {
        Ok(Self(crate::bytes::at(body, bit / 8)))
    }

    fn write(&self, body: &mut Body, bit: usize) {
        crate::bytes::put(body, bit / 8, self.0);
    }

    fn display_value(&self) -> MadValue<'_> {
        MadValue::Bytes(&self.0)
    }
}

impl Field for SpreadVendorId {
    fn read(_: Attribute, body: &Body, bit: usize) -> Result<Self, MadError> {
        let at = bit / 8;
        Ok(Self(Bits(u32::from_be_bytes([0, body[at], body[at + 4], body[at + 8]]))))
    }

    fn write(&self, body: &mut Body, bit: usize) {
        let at = bit / 8;
        let [_, high, middle, low] = self.0.value().to_be_bytes();
        (body[at], body[at + 4], body[at + 8]) = (high, middle, low);
    }

    fn display_value(&self) -> MadValue<'_> {
        MadValue::Plain(Value::Hex(self.0.value().into(), 6))
    }
}

/// Implements [`Field`] for numbers of a fixed width.
macro_rules! number_fields {
    ($(
        $ty:ty, $width:literal, |$bits:ident| $read:expr, |$this:ident| $write:expr, $value:expr;
    )*) => {$(
        impl Field for $ty {
            fn read(_: Attribute, body: &Body, bit: usize) -> Result<Self, MadError> {
                let $bits = get(body, bit, $width);
                Ok($read)
            }

            fn write(&self, body: &mut Body, bit: usize) {
                let $this = self;
                put(body, bit, $width, $write);
            }

            fn display_value(&self) -> MadValue<'_> {
                let $this = self;
                $value
            }
        }
    )*};
}

fn decimal<'a>(value: impl Into<u64>) -> MadValue<'a> {
    MadValue::Plain(Value::Decimal(value.into()))
}

fn word<'a>(word: &'static str) -> MadValue<'a> {
    MadValue::Plain(Value::Word(word))
}

fn hex<'a>(value: impl Into<u64>, digits: usize) -> MadValue<'a> {
    MadValue::Plain(Value::Hex(value.into(), digits))
}

number_fields! {
    CommId, 32, |v| Self(v as u32), |this| this.0.into(), hex(this.0, 8);
    Guid, 64, |v| Self(v), |this| this.0, MadValue::Text(this.to_string());
    ServiceId, 64, |v| Self(v), |this| this.0, MadValue::Text(this.to_string());
    QKey, 32, |v| Self(v as u32), |this| this.0.into(), hex(this.0, 8);
    Qpn, 24, |v| Self::masked(v as u32), |this| this.value().into(), hex(this.value(), 6);
    Psn, 24, |v| Self::new(v as u32), |this| this.value().into(), decimal(this.value());
    PKey, 16, |v| Self(v as u16), |this| this.0.into(), hex(this.0, 4);
    u8, 8, |v| v as u8, |this| (*this).into(), decimal(*this);
    u16, 16, |v| v as u16, |this| (*this).into(), decimal(*this);
    bool, 1, |v| v != 0, |this| u64::from(*this), MadValue::Plain(Value::Flag(*this));
    RejReason, 16, |v| Self(v as u16), |this| this.0.into(), MadValue::Text(this.to_string());
    ApStatus, 8, |v| Self(v as u8), |this| this.0.into(), MadValue::Text(this.to_string());
    SidrStatus, 8, |v| Self(v as u8), |this| this.0.into(), MadValue::Text(this.to_string());
    Answered, 2, |v| Self::ALL[v as usize & 3], |this| *this as u64, word(this.name());
    TransportType, 2, |v| Self::ALL[v as usize & 3], |this| *this as u64, word(this.name());
}

impl<const WIDTH: usize> Field for Bits<WIDTH> {
    fn read(_: Attribute, body: &Body, bit: usize) -> Result<Self, MadError> {
        Ok(Self(get(body, bit, WIDTH) as u32))
    }

    fn write(&self, body: &mut Body, bit: usize) {
        put(body, bit, WIDTH, self.0.into());
    }

    fn display_value(&self) -> MadValue<'_> {
        decimal(self.0)
    }
}

impl Field for Gid {
    fn read(_: Attribute, body: &Body, bit: usize) -> Result<Self, MadError> {
        Ok(Self(crate::bytes::at(body, bit / 8)))
    }

    fn write(&self, body: &mut Body, bit: usize) {
        crate::bytes::put(body, bit / 8, self.0);
    }

    fn display_value(&self) -> MadValue<'_> {
        MadValue::Text(if self.is_zero() { self.to_string() } else { self.to_ip().to_string() })
    }
}

#[cfg(test)]
mod tests;
