//! A timer that wakes the background thread when polling stops.
//!
//! The background thread must wake up at most 1 ms after the last poll, because acknowledgements
//! may be pending that no other thread sends. If the thread woke up every millisecond to check,
//! each wake-up would take a processor from a polling thread for about 20 µs. Where two processes
//! poll on two processors, two round trips in a hundred would take that much longer. Instead the
//! polling thread extends the timer, with one system call for most of a millisecond. When the
//! thread stops polling, the timer expires.
//!
//! ```text
//!   background: arms the timer, 1 ms   sleeps ......................... wakes: no recent poll
//!   polls:      | | | | | | little time is left and a message was sent: extends by 1 ms | | | | |
//! ```
//! In a virtual machine, setting a timer can take 10 µs, twice the round trip of a message. Right
//! after sending a message the polling thread has time for that, because the reply is not there
//! yet.
//!
//! The timer also keeps deadlines of the device. Deadlines that appear after the timer was set are
//! taken into account with the next extension.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sys::clock::timespec;
use crate::time::Time;

/// Nanoseconds from the last poll to the wake-up at most.
const POLL_GRACE_NS: u64 = 1_000_000;
/// Nanoseconds left at which the timer is extended right after a message was sent.
const EXTEND_AFTER_SEND_NS: u64 = POLL_GRACE_NS / 4;
/// Nanoseconds left at which any poll extends the timer.
const EXTEND_NS: u64 = POLL_GRACE_NS / 16;

/// The timer that wakes the background thread while another thread polls.
#[derive(Debug)]
pub(super) struct PollWatchdog {
    timer: OwnedFd,
    /// The time at which the timer expires; 0 while no thread sleeps on it.
    until_ns: AtomicU64,
}

impl PollWatchdog {
    /// Makes a timer that is not armed.
    ///
    /// # Errors
    /// The system's, if no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        Ok(Self { timer, until_ns: AtomicU64::new(0) })
    }

    /// Arms the timer before the background thread sleeps: for the grace period, or for `deadline`
    /// if that is earlier.
    pub fn arm(&self, now: Time, deadline: Time) {
        let until = now.plus_ns(POLL_GRACE_NS).min(deadline);
        self.set(now, until);
        self.until_ns.store(until.as_ns().max(1), Ordering::Relaxed);
    }

    /// Records that the background thread woke up.
    pub fn disarm(&self) {
        self.until_ns.store(0, Ordering::Relaxed);
    }

    /// Extends the timer if little time is left. Returns whether it did. Polling threads call this
    /// function often. `has_sent`: the thread waits for a reply anyway. `deadline`
    /// returns the next deadline.
    pub fn extend(&self, now: Time, has_sent: bool, deadline: impl FnOnce() -> Time) -> bool {
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        let left_ns = if has_sent { EXTEND_AFTER_SEND_NS } else { EXTEND_NS };
        if until_ns == 0 || until_ns > now.as_ns() + left_ns {
            return false;
        }
        let until = now.plus_ns(POLL_GRACE_NS).min(deadline());
        let until_ns_new = until.as_ns().max(1);
        if until_ns_new == until_ns {
            return false; // a deadline that is near
        }
        // Several threads may poll. If the background thread woke up meanwhile, the timer expires
        // without effect.
        let swapped = self.until_ns.compare_exchange(
            until_ns,
            until_ns_new,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if swapped.is_ok() {
            self.set(now, until);
        }
        swapped.is_ok()
    }

    fn set(&self, now: Time, until: Time) {
        // Zero would disarm the timer.
        let it_value = timespec(until.since_ns(now).max(1));
        let once = Itimerspec { it_interval: timespec(0), it_value };
        // The descriptor and the time are valid, so the call cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl AsFd for PollWatchdog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::sys::clock;

    fn at(us: u64) -> Time {
        Time::from_ns(1_000_000_000 + us * 1000)
    }

    /// Returns when the timer expires.
    fn until(watchdog: &PollWatchdog) -> Time {
        Time::from_ns(watchdog.until_ns.load(Ordering::Relaxed))
    }

    fn never() -> Time {
        Time::NEVER
    }

    #[test]
    fn a_poll_extends_the_timer_when_little_is_left() {
        let watchdog = PollWatchdog::new().unwrap();
        watchdog.extend(at(0), true, || unreachable!("no thread sleeps"));
        watchdog.arm(at(0), Time::NEVER);
        assert_eq!(until(&watchdog), at(1000));
        for us in [749, 937] {
            watchdog
                .extend(at(us), us < 750, || unreachable!("a message may be sent before the end"));
            assert_eq!(until(&watchdog), at(1000));
        }
        for turn in 0..100 {
            let has_sent = turn % 2 == 0;
            let now =
                until(&watchdog).as_ns() - if has_sent { EXTEND_AFTER_SEND_NS } else { EXTEND_NS };
            watchdog.extend(Time::from_ns(now), has_sent, never);
            assert_eq!(until(&watchdog), Time::from_ns(now + POLL_GRACE_NS));
        }
        watchdog.disarm();
        watchdog.extend(at(200_000), true, || unreachable!("no thread sleeps"));
    }

    #[test]
    fn a_deadline_is_kept_while_a_thread_polls() {
        let watchdog = PollWatchdog::new().unwrap();
        watchdog.arm(at(0), at(700));
        assert_eq!(until(&watchdog), at(700));
        watchdog.extend(at(600), true, || at(700));
        assert_eq!(until(&watchdog), at(700), "as it was");
        watchdog.extend(at(600), true, || at(1300));
        assert_eq!(until(&watchdog), at(1300), "it is due later now");
        watchdog.extend(at(1100), true, || at(900));
        assert_eq!(until(&watchdog), at(900), "and was due meanwhile");
    }

    #[test]
    fn the_timer_expires_for_a_sleeping_thread() {
        let watchdog = PollWatchdog::new().unwrap();
        let begin = clock::now();
        watchdog.arm(begin, Time::NEVER);
        let mut waits = [PollFd::new(&watchdog, PollFlags::IN)];
        poll(&mut waits, None).unwrap();
        assert!(clock::now().since_ns(begin) >= POLL_GRACE_NS);
        // A deadline in the past expires at once.
        watchdog.arm(clock::now(), Time::ZERO);
        poll(&mut waits, None).unwrap();
    }
}
