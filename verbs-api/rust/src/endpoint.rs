//! The endpoint of a queue pair, and the parser for the texts that programs exchange.
//!
//! Numbers in these texts have a stricter form than in the standard library, whose parsers accept a
//! sign.

use std::fmt;
use std::str::FromStr;

use urxe_wire::{Gid, Psn, Qpn};

/// One end of a connection: the values that the peer needs to connect to a queue pair.
///
/// The program transfers the endpoint in its own way, for example over TCP, in a file or as an
/// argument. `Display` and `FromStr` convert it to and from the text form
/// `gid=0000:0000:0000:0000:0000:ffff:7f00:0001,qpn=0x000011,psn=0x00abcd`. `FromStr` accepts the
/// GID in every form of an IP address.
///
/// ```
/// use urxe::{EndpointParseError, Psn, QpEndpoint, Qpn};
///
/// # fn main() -> Result<(), EndpointParseError> {
/// let endpoint: QpEndpoint = "gid=10.0.0.1,qpn=0x000011,psn=0x00abcd".parse()?;
/// let (qpn, psn): (Qpn, Psn) = (endpoint.qpn, endpoint.psn);
/// assert_eq!((qpn.value(), psn.value()), (0x11, 0xabcd));
/// assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
/// assert_eq!("10.0.0.1".parse::<QpEndpoint>(), Err(EndpointParseError::Shape));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpEndpoint {
    /// The GID of the port that the queue pair sends from.
    pub gid: Gid,
    /// The queue pair number.
    pub qpn: Qpn,
    /// The PSN of the first packet that the queue pair sends.
    pub psn: Psn,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid={},qpn={},psn={:#08x}", self.gid, self.qpn, self.psn.value())
    }
}

/// The reason why a text is not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointParseError {
    /// The text does not have the three fields `gid`, `qpn` and `psn` in this order.
    #[error("not an endpoint; expected gid=::ffff:127.0.0.1,qpn=0x000011,psn=0x00abcd")]
    Shape,
    /// The GID is invalid.
    #[error("gid: {0}")]
    Gid(#[from] urxe_wire::GidParseError),
    /// The queue pair number is invalid.
    #[error("qpn is not 0x followed by a hexadecimal number of at most 24 bits")]
    Qpn,
    /// The PSN is invalid.
    #[error("psn is not 0x followed by a hexadecimal number of at most 24 bits")]
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

/// Splits a text `NAME=VALUE,NAME=VALUE,…` into its values. Returns `None` unless the text has
/// exactly these names in this order.
pub(crate) fn fields<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[&'a str; N]> {
    let mut fields = text.trim().split(',');
    let mut values = [""; N];
    for (value, name) in values.iter_mut().zip(names) {
        let (found, given) = fields.next()?.trim().split_once('=')?;
        *value = (found == name).then_some(given)?;
    }
    fields.next().is_none().then_some(values)
}

/// Parses `0x` followed by one to sixteen hexadecimal digits.
pub(crate) fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Parses a number of decimal digits.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Implements the traits of serde for a type by its text form.
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
