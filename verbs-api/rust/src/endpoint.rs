//! What two queue pairs tell each other to connect, and reading the texts that programs exchange.
//! Numbers in them are stricter than the standard library's, which take a sign.

use std::fmt;
use std::str::FromStr;

use urxe_wire::{Gid, Psn, Qpn};

/// One end of a connection: what the peer needs to connect to it. How it gets there (a TCP
/// connection, a file, an argument) is the program's choice.
///
/// As text, `gid=0000:0000:0000:0000:0000:ffff:7f00:0001,qpn=0x000011,psn=0x00abcd`: `Display`
/// writes it, `FromStr` reads it, with the GID in any form of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpEndpoint {
    /// The GID of the end's port.
    pub gid: Gid,
    /// The queue pair's number.
    pub qpn: Qpn,
    /// The PSN of the first packet that it will send.
    pub psn: Psn,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid={},qpn={},psn={:#08x}", self.gid, self.qpn, self.psn.value())
    }
}

/// Why a text names no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointParseError {
    /// Not three fields.
    #[error("not an endpoint: it reads gid=::ffff:127.0.0.1,qpn=0x000011,psn=0x00abcd")]
    Shape,
    /// The GID.
    #[error("gid: {0}")]
    Gid(#[from] urxe_wire::GidParseError),
    /// The number.
    #[error("qpn is not 0x and a number of 24 bits in hexadecimal digits")]
    Qpn,
    /// The PSN.
    #[error("psn is not 0x and a number of 24 bits in hexadecimal digits")]
    Psn,
}

impl FromStr for QpEndpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, EndpointParseError> {
        let named = fields(text, ["gid", "qpn", "psn"]);
        let [gid, qpn, psn] = named.ok_or(EndpointParseError::Shape)?;
        let u24 = |text| hex(text).and_then(|number| u32::try_from(number).ok());
        Ok(Self {
            gid: gid.parse()?,
            qpn: u24(qpn).and_then(Qpn::new).ok_or(EndpointParseError::Qpn)?,
            psn: u24(psn).and_then(|psn| Psn::try_from(psn).ok()).ok_or(EndpointParseError::Psn)?,
        })
    }
}

/// The values of a text `NAME=VALUE,NAME=VALUE,…` with these names in this order.
pub(crate) fn fields<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[&'a str; N]> {
    let mut fields = text.trim().split(',');
    let mut values = [""; N];
    for (value, name) in values.iter_mut().zip(names) {
        let (found, given) = fields.next()?.trim().split_once('=')?;
        *value = (found == name).then_some(given)?;
    }
    fields.next().is_none().then_some(values)
}

/// `0x` and one to sixteen hexadecimal digits.
pub(crate) fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Decimal digits.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Makes a type whose text is its value one of serde's strings.
macro_rules! serde_as_text {
    ($type:ty) => {
        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use serde_as_text;

serde_as_text!(QpEndpoint);
