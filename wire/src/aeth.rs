//! ACK extended transport header (IBTA vol. 1, 9.5.2 and 9.7.5), and the encodings of time that
//! belong to acknowledgements: [`RnrTimer`] (table 45) and [`AckTimeout`] (9.9.2.1.1).

use std::fmt;
use std::time::Duration;

use crate::Msn;
use crate::bytes::{head, put};
use crate::error::{Header, ParseError};
use crate::fields::Value;

/// Defines a newtype over a five-bit code.
macro_rules! five_bits {
    ($(#[$doc:meta])* $name:ident, $code:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        impl $name {
            /// Returns the value with this code, or `None` if the code exceeds five bits.
            #[must_use]
            pub const fn new(code: u8) -> Option<Self> {
                if code > 0x1f { None } else { Some(Self(code)) }
            }

            /// Returns the code, 0 ..= 31.
            #[must_use]
            pub const fn $code(self) -> u8 {
                self.0
            }
        }
    };
}

five_bits! {
    /// End-to-end flow control credits of an ACK: a five-bit code (IBTA table 46).
    Credits, code
}

impl Credits {
    /// Credits are not used. `rdma_rxe` and RoCE adapters send this code.
    pub const INVALID: Self = Self(0x1f);

    /// Returns the number of receive WQEs, or `None` if credits are not used.
    #[must_use]
    pub const fn count(self) -> Option<u32> {
        match self.0 {
            31 => None,
            // The counts are 0, 1, 2, 3, then every power of two and the value halfway to the next.
            code @ 0..=3 => Some(code as u32),
            code if code & 1 == 0 => Some(1 << (code / 2)),
            code => Some(3 << (code / 2 - 1)),
        }
    }
}

five_bits! {
    /// Wait time of a requester after an RNR NAK: a five-bit code (IBTA table 45).
    RnrTimer, code
}

/// The wait times by code, in units of 10 µs. Code 0 is the longest.
const RNR_UNITS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl RnrTimer {
    /// Code 0, the longest wait time: 655.36 ms.
    pub const LONGEST: Self = Self(0);

    /// Returns the wait time in nanoseconds, 10 µs ..= 655.36 ms.
    #[must_use]
    pub const fn duration_ns(self) -> u64 {
        RNR_UNITS[(self.0 & 0x1f) as usize] as u64 * 10_000
    }

    /// Returns the wait time, 10 µs ..= 655.36 ms.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.duration_ns())
    }

    /// Returns the shortest wait time of at least `duration_ns`, or the longest one.
    #[must_use]
    pub const fn at_least(duration_ns: u64) -> Self {
        let mut code = 1;
        while code < 32 {
            if Self(code).duration_ns() >= duration_ns {
                return Self(code);
            }
            code += 1;
        }
        Self::LONGEST
    }
}

/// Rounds up to the next wait time of the table. More than 655.36 ms become 655.36 ms.
///
/// ```
/// use std::time::Duration;
/// use urxe_wire::RnrTimer;
///
/// assert_eq!(RnrTimer::from(Duration::from_micros(500)).duration(), Duration::from_micros(640));
/// assert_eq!(RnrTimer::from(Duration::from_secs(1)), RnrTimer::LONGEST);
/// ```
impl From<Duration> for RnrTimer {
    fn from(duration: Duration) -> Self {
        Self::at_least(saturating_ns(duration))
    }
}

five_bits! {
    /// Local ACK timeout: a five-bit exponent, 4.096 µs · 2^n (IBTA 9.9.2.1.1). urxe waits at least
    /// 4 ms, as `rdma_rxe` does; NICs have their own shortest times.
    AckTimeout, exponent
}

impl AckTimeout {
    /// Exponent 0: there is no timeout.
    pub const OFF: Self = Self(0);

    /// Returns the timeout in nanoseconds, at most 2.4 hours, or `None` if there is no timeout.
    #[must_use]
    pub const fn duration_ns(self) -> Option<u64> {
        if self.0 == 0 { None } else { Some(4_096 << (self.0 & 0x1f)) }
    }

    /// Returns the timeout, at most 2.4 hours, or `None` if there is no timeout.
    #[must_use]
    pub const fn duration(self) -> Option<Duration> {
        match self.duration_ns() {
            Some(ns) => Some(Duration::from_nanos(ns)),
            None => None,
        }
    }

    /// Returns the shortest timeout of at least `duration_ns`, or the longest one. The result is
    /// never [`OFF`](Self::OFF).
    #[must_use]
    pub const fn at_least(duration_ns: u64) -> Self {
        let mut exponent = 1;
        while exponent < 31 && (4_096 << exponent) < duration_ns {
            exponent += 1;
        }
        Self(exponent)
    }
}

/// Rounds up to the next of 8.192 µs · 2^n. A duration above 2.4 hours becomes 2.4 hours. No
/// duration becomes [`AckTimeout::OFF`].
///
/// ```
/// use std::time::Duration;
/// use urxe_wire::AckTimeout;
///
/// let timeout = AckTimeout::from(Duration::from_millis(500));
/// assert_eq!(timeout.exponent(), 17);
/// assert_eq!(timeout.duration(), Some(Duration::from_nanos(4096 << 17)));
/// assert_eq!(AckTimeout::from(Duration::ZERO).exponent(), 1);
/// assert_eq!(AckTimeout::from(Duration::MAX).exponent(), 31);
/// ```
impl From<Duration> for AckTimeout {
    fn from(duration: Duration) -> Self {
        Self::at_least(saturating_ns(duration))
    }
}

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

crate::named_enum! {
    /// The reason of a NAK (IBTA table 47).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum NakCode: name, code -> u8, from_code(u8) {
        /// A packet is missing. The requester must resend from the PSN of this NAK.
        PsnSequence = 0 => "PSN sequence error",
        /// The request is not valid for this queue pair.
        InvalidRequest = 1 => "invalid request",
        /// The key, the range or the access right is wrong.
        RemoteAccess = 2 => "remote access error",
        /// The responder failed for a reason of its own.
        RemoteOperational = 3 => "remote operational error",
        /// Used by Reliable Datagram only.
        InvalidRdRequest = 4 => "invalid RD request",
    }
}

/// The meaning of the syndrome byte of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// All requests up to the PSN have arrived.
    Ack(Credits),
    /// The responder had no receive WQE. The requester waits, then resends from the PSN.
    RnrNak(RnrTimer),
    /// The responder rejected the request.
    Nak(NakCode),
    /// A reserved byte, kept unchanged.
    Reserved(ReservedSyndrome),
}

/// A reserved syndrome byte. A byte with a defined meaning cannot be converted to this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservedSyndrome(u8);

impl ReservedSyndrome {
    /// Returns the byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
}

impl Syndrome {
    /// An ACK without credits, as `rdma_rxe` sends it.
    pub const ACK: Self = Self::Ack(Credits::INVALID);

    /// Decodes a syndrome byte. Every byte has a value, because undefined bytes decode as reserved.
    #[must_use]
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        let low = byte & 0x1f;
        match byte >> 5 {
            0b000 => Self::Ack(Credits(low)),
            0b001 => Self::RnrNak(RnrTimer(low)),
            0b011 => match NakCode::from_code(low) {
                Some(code) => Self::Nak(code),
                None => Self::Reserved(ReservedSyndrome(byte)),
            },
            _ => Self::Reserved(ReservedSyndrome(byte)),
        }
    }

    /// Returns the syndrome byte.
    #[must_use]
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::RnrNak(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte.0,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(credits) => match credits.count() {
                None => f.write_str("ACK"),
                Some(n) => write!(f, "ACK credits {n}"),
            },
            Self::RnrNak(timer) => {
                let us = timer.duration_ns() / 1_000;
                write!(f, "RNR NAK wait {}.{:02} ms", us / 1_000, us % 1_000 / 10)
            }
            Self::Nak(code) => write!(f, "NAK {code}"),
            Self::Reserved(byte) => write!(f, "reserved syndrome 0x{:02x}", byte.0),
        }
    }
}

/// ACK extended transport header (IBTA vol. 1, 9.5.2 and 9.7.5): the responder's answer to
/// requests.
///
/// ```text
///  0          1          4
/// +-----------+----------+
/// | syndrome  |   MSN    |
/// +-----------+----------+
///
/// syndrome: 0 00 CCCCC  ACK, credit count C
///           0 01 TTTTT  RNR NAK, timer T
///           0 10 .....  reserved
///           0 11 NNNNN  NAK, code N
///           1 .. .....  reserved
/// ```
///
/// ```
/// use urxe_wire::{Aeth, Credits, Msn, Syndrome};
///
/// let header = Aeth { syndrome: Syndrome::Ack(Credits::INVALID), msn: Msn::masked(3) };
/// let mut bytes = [0; Aeth::LEN];
/// header.emit(&mut bytes);
/// assert_eq!(bytes, [0x1f, 0, 0, 3]);
/// assert_eq!(Aeth::parse(&bytes)?, header);
/// # Ok::<(), urxe_wire::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Number of requests that the responder completed, modulo 2^24.
    pub msn: Msn,
}

impl Aeth {
    /// The length of the header on the wire, in bytes.
    pub const LEN: usize = Header::Aeth.wire_len();

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// Fails with [`ParseError::ShortHeader`] if `bytes` is shorter than [`LEN`](Self::LEN).
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let [s, a, b, c]: [u8; Self::LEN] = *head(bytes, Header::Aeth)?;
        Ok(Self { syndrome: Syndrome::from_byte(s), msn: Msn::from_be_bytes([a, b, c]) })
    }

    /// Writes the header to `buf`.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        let [a, b, c] = self.msn.to_be_bytes();
        put(buf, 0, [self.syndrome.byte(), a, b, c]);
    }

    /// Returns the fields with their names, for listings.
    pub(crate) fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("syndrome", Value::Hex(self.syndrome.byte().into(), 2)),
            ("msn", Value::Decimal(self.msn.value().into())),
        ]
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn {}", self.syndrome, self.msn)
    }
}

#[cfg(test)]
mod tests;
