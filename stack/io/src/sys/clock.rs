//! The two clocks: the monotonic clock of a device over UDP, and the wall clock for captures.
#![deny(unsafe_code)]

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

use urxe_types::time::Time;

/// Returns the time of `CLOCK_MONOTONIC`, in nanoseconds since boot. Needs no system call if the
/// vDSO has the clock.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let fraction = u64::try_from(now.tv_nsec).unwrap_or(0);
    Time::from_ns(seconds.saturating_mul(1_000_000_000).saturating_add(fraction))
}

/// Converts `ns` nanoseconds for system calls.
#[must_use]
pub fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// Returns nanoseconds since 1970-01-01 UTC, or 0 before it.
#[must_use]
pub fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_passes() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let passed = now().since_ns(before);
        assert!((2_000_000..10_000_000_000).contains(&passed), "{passed} ns");
    }

    #[test]
    fn wall_time_is_of_this_century() {
        assert!(wall_ns() > 1_700_000_000_000_000_000);
    }
}
