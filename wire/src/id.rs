//! The numbers a packet names things by: PSN, QPN, MSN, keys.
//!
//! Each is its own type, so that a local key cannot be handed in where a remote one is meant, and
//! so that 24-bit values stay 24 bits wide. None of them is a plain integer to the outside: a value
//! that exists can be emitted.
//!
//! PSNs live on a circle of 2^24, where "before" is only defined for values less than half the
//! circle apart (IBTA vol. 1, 9.7.1). [`Psn`] therefore has [`Psn::distance`] and
//! [`Psn::precedes`], and no `Ord`.

use std::fmt;

/// Bits of a 24-bit field.
const MASK24: u32 = 0x00ff_ffff;

/// A value outside the 24 bits its field has on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:#x} does not fit in 24 bits")]
pub struct OutOfRange {
    /// What was given.
    pub value: u32,
}

/// Declares a newtype over a 24-bit number.
macro_rules! u24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The low 24 bits of `value`; higher bits are dropped.
            #[must_use]
            pub const fn masked(value: u32) -> Self {
                Self(value & MASK24)
            }

            /// The number, always below 2^24.
            #[must_use]
            pub const fn value(self) -> u32 {
                self.0
            }

            /// Reads three bytes in network order.
            #[must_use]
            pub const fn from_be_bytes(b: [u8; 3]) -> Self {
                Self(u32::from_be_bytes([0, b[0], b[1], b[2]]))
            }

            /// Three bytes in network order.
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; 3] {
                let [_, a, b, c] = self.0.to_be_bytes();
                [a, b, c]
            }
        }

        impl TryFrom<u32> for $name {
            type Error = OutOfRange;

            fn try_from(value: u32) -> Result<Self, OutOfRange> {
                if value > MASK24 { Err(OutOfRange { value }) } else { Ok(Self(value)) }
            }
        }

        impl From<$name> for u32 {
            fn from(v: $name) -> u32 {
                v.0
            }
        }
    };
}

u24! {
    /// Packet sequence number: 24 bits, wrapping (IBTA 9.7.1).
    Psn
}

impl Psn {
    /// How many PSNs there are.
    pub const MODULUS: u32 = 1 << 24;

    /// The low 24 bits of `value`: arithmetic on PSNs wraps, so a wider counter may be handed in as
    /// it is.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self::masked(value)
    }

    /// `n` packets later.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // `Psn + Psn` has no meaning; a count is not a PSN
    pub const fn add(self, n: u32) -> Self {
        Self::masked(self.0.wrapping_add(n))
    }

    /// `n` packets earlier.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub const fn sub(self, n: u32) -> Self {
        Self::masked(self.0.wrapping_sub(n))
    }

    /// The PSN that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// How far `self` is after `earlier`: -2^23 ..= 2^23-1, negative when it is before.
    #[must_use]
    pub const fn distance(self, earlier: Self) -> i32 {
        // Shift the 24-bit difference to the top of the word, so that its sign bit is the word's.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// How many steps lead from `earlier` forward to `self`: 0 ..= 2^24-1.
    #[must_use]
    pub const fn steps_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & MASK24
    }

    /// Whether `self` lies before `other` on the shorter arc.
    #[must_use]
    pub const fn precedes(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Whether `self` lies in the `count` PSNs that begin with `first`.
    #[must_use]
    pub const fn within(self, first: Self, count: u32) -> bool {
        self.steps_from(first) < count
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

u24! {
    /// Queue pair number: 24 bits.
    Qpn
}

impl Qpn {
    /// The subnet management queue pair.
    pub const QP0: Self = Self(0);
    /// The general services queue pair; CM datagrams go from QP1 to QP1.
    pub const QP1: Self = Self(1);
    /// The destination of every multicast packet.
    pub const MULTICAST: Self = Self(MASK24);

    /// `value` as a QPN, or `None` beyond 24 bits.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value > MASK24 { None } else { Some(Self(value)) }
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

u24! {
    /// Message sequence number of an AETH: how many requests the responder has completed, modulo
    /// 2^24 (IBTA 9.7.7.1).
    Msn
}

impl Msn {
    /// `n` messages later.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, n: u32) -> Self {
        Self::masked(self.0.wrapping_add(n))
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Declares a newtype over a whole word: every value is valid.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident($int:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// The number.
            #[must_use]
            pub const fn value(self) -> $int {
                self.0
            }
        }

        impl From<$int> for $name {
            fn from(v: $int) -> Self {
                Self(v)
            }
        }

        impl From<$name> for $int {
            fn from(v: $name) -> $int {
                v.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

word! {
    /// Local key of a memory region: names it in this host's own work requests, never on the wire.
    Lkey(u32), "0x{:08x}"
}

word! {
    /// Remote key of a memory region or window: what a peer must present (RETH, AtomicETH, IETH).
    Rkey(u32), "0x{:08x}"
}

word! {
    /// Key of a datagram queue pair (DETH).
    QKey(u32), "0x{:08x}"
}

impl QKey {
    /// The well-known key of QP1 (IBTA 16.1).
    pub const GSI: Self = Self(0x8001_0000);

    /// Whether the most significant bit is set: a sender that asks for such a key sends its QP's
    /// own instead (IBTA 10.2.5).
    #[must_use]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

word! {
    /// Partition key: 15 bits of number, and the top bit for full membership.
    PKey(u16), "0x{:04x}"
}

impl PKey {
    /// The default partition, full member: the only one RoCE uses.
    pub const DEFAULT: Self = Self(0xffff);

    /// Whether two ends may talk: equal numbers, not both limited members (IBTA 10.9.3).
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        (self.0 & 0x7fff) == (other.0 & 0x7fff) && (self.0 | other.0) & 0x8000 != 0
    }
}

#[cfg(test)]
mod tests;
