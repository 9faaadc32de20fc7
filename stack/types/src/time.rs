//! Time of the core's clock, in nanoseconds since an origin that the driver of a device chooses.
//!
//! The core never reads a clock. Every call that needs the time takes a [`Time`]. With UDP it comes
//! from `CLOCK_MONOTONIC`, in the simulated network from the event queue.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the driver's origin. Time must not go backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// A time after all others. Means "no deadline" where an `Option` would cost a branch.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time `ns` nanoseconds after the origin.
    #[must_use]
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds since `earlier`, or 0 if `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time `ns` nanoseconds later, at most [`Time::NEVER`].
    #[must_use]
    #[inline]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.plus_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sub for Time {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.since_ns(earlier))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
