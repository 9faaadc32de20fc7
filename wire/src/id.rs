//! Newtypes for the numbers in a packet: PSN, QPN, MSN and keys.
//!
//! Separate types keep a local key from being passed as a remote key, and keep 24-bit values within
//! 24 bits. Every value of these types can be emitted.
//!
//! PSNs wrap at 2^24. The order of two PSNs is defined only if they are less than half of that
//! range apart (IBTA vol. 1, 9.7.1). [`Psn`] therefore has [`Psn::distance`] and [`Psn::precedes`]
//! instead of `Ord`.

use std::fmt;

/// The mask of a 24-bit field.
const MASK24: u32 = 0x00ff_ffff;

/// The error for a value that does not fit in 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:#x} does not fit in 24 bits")]
pub struct OutOfRange {
    /// The given value.
    pub value: u32,
}

/// Declares a newtype over a 24-bit number.
macro_rules! u24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl fmt::Debug for $name {
            /// Prints the number as listings show it.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl $name {
            /// Returns the low 24 bits of `value`. Higher bits are dropped.
            #[must_use]
            pub const fn masked(value: u32) -> Self {
                Self(value & MASK24)
            }

            /// Returns the number, which is always below 2^24.
            #[must_use]
            pub const fn value(self) -> u32 {
                self.0
            }

            /// Reads three bytes in network order.
            #[must_use]
            pub const fn from_be_bytes(b: [u8; 3]) -> Self {
                Self(u32::from_be_bytes([0, b[0], b[1], b[2]]))
            }

            /// Returns the three bytes in network order.
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
    /// The number of different PSNs, 2^24.
    pub const MODULUS: u32 = 1 << 24;

    /// Returns the low 24 bits of `value`.
    ///
    /// PSN arithmetic wraps, so callers may pass a wider counter.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self::masked(value)
    }

    /// Returns the PSN `n` packets later.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // `Psn + Psn` has no meaning; a count is not a PSN
    pub const fn add(self, n: u32) -> Self {
        Self::masked(self.0.wrapping_add(n))
    }

    /// Returns the PSN `n` packets earlier.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub const fn sub(self, n: u32) -> Self {
        Self::masked(self.0.wrapping_sub(n))
    }

    /// Returns the PSN that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Returns how far `self` is after `earlier`: -2^23 ..= 2^23-1, negative if `self` is before.
    #[must_use]
    pub const fn distance(self, earlier: Self) -> i32 {
        // The shift moves the sign of the 24-bit difference to the sign bit of the word.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// Returns the number of forward steps from `earlier` to `self`: 0 ..= 2^24-1.
    #[must_use]
    pub const fn steps_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & MASK24
    }

    /// Returns whether `self` is before `other`, along the shorter distance.
    #[must_use]
    pub const fn precedes(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Returns whether `self` is one of the `count` PSNs that start with `first`.
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
    /// The general services queue pair. Datagrams of the connection manager go from QP1 to QP1.
    pub const QP1: Self = Self(1);
    /// The destination of every multicast packet.
    pub const MULTICAST: Self = Self(MASK24);

    /// Returns `value` as a QPN, or `None` if the value exceeds 24 bits.
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
    /// Message sequence number of an AETH: the number of requests that the responder completed,
    /// modulo 2^24 (IBTA 9.7.7.1).
    Msn
}

impl Msn {
    /// Returns the MSN `n` messages later.
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

/// Declares a newtype over a whole word, of which every value is valid.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident($int:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            /// Prints the number as listings show it.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl $name {
            /// Returns the number.
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
    /// Local key of a memory region, for this host's own work requests. Never on the wire.
    Lkey(u32), "0x{:08x}"
}

word! {
    /// Remote key of a memory region or window, which a peer must present (RETH, AtomicETH, IETH).
    Rkey(u32), "0x{:08x}"
}

word! {
    /// Key of a datagram queue pair (DETH).
    QKey(u32), "0x{:08x}"
}

impl QKey {
    /// The well-known Q_Key of QP1 (IBTA 16.1).
    pub const GSI: Self = Self(0x8001_0000);

    /// Returns whether the most significant bit is set. For a work request with such a key, the
    /// sender uses the Q_Key of its queue pair instead (IBTA 10.2.5).
    #[must_use]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

word! {
    /// Partition key: a 15-bit number, and the top bit for full membership.
    PKey(u16), "0x{:04x}"
}

impl PKey {
    /// The default partition with full membership, the only one that RoCE uses.
    pub const DEFAULT: Self = Self(0xffff);

    /// Returns whether two members may communicate: the numbers are equal and at least one member
    /// is full (IBTA 10.9.3).
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        (self.0 & 0x7fff) == (other.0 & 0x7fff) && (self.0 | other.0) & 0x8000 != 0
    }
}

#[cfg(test)]
mod tests;
