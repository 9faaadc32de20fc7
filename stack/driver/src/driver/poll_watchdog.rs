//! How the background thread sleeps beside a thread that polls.
//!
//! It must be there a millisecond after the last poll at the latest: acknowledgements may be owed,
//! and nobody else sends them. Were it to wake each millisecond to see about that, each time would
//! take a processor from a polling thread for some 20 µs, and where two processes poll on two
//! processors, two round trips in a hundred would last so much longer. So the polling thread itself
//! puts the sleeper's time off, by one system call in most of a millisecond; when it stops polling,
//! the time comes.
//!
//! ```text
//!   background:  set the timer, a millisecond on   sleep ............................... wake: nobody has polled for a while
//!   polls:       | | | | | |  a little is left, and a message was sent: a millisecond from now | | | | | | |
//! ```
//! Where timers are a virtual machine's, setting one takes 10 µs, twice a message's way there and
//! back. Right behind a message that was sent nobody misses some of these, since its answer is not
//! there yet.
//!
//! Deadlines of the device count like the millisecond: what came up since the timer was set is
//! found when it is set again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sys::clock::timespec;
use crate::time::Time;

/// From the last poll to the wake-up at most.
const POLL_GRACE_NS: u64 = 1_000_000;
/// With less than this left it is put off right after a message was sent, ...
const EXTEND_AFTER_SEND_NS: u64 = POLL_GRACE_NS / 4;
/// ... and with less than this at any poll.
const EXTEND_NS: u64 = POLL_GRACE_NS / 16;

/// The timer that wakes the background thread while some thread polls.
#[derive(Debug)]
pub(super) struct PollWatchdog {
    timer: OwnedFd,
    /// When it goes off; 0 while nobody sleeps on it.
    until_ns: AtomicU64,
}

impl PollWatchdog {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        Ok(Self { timer, until_ns: AtomicU64::new(0) })
    }

    /// Sets the timer, before the background thread sleeps: a grace period on, or at `deadline` if
    /// that is earlier.
    pub fn arm(&self, now: Time, deadline: Time) {
        let until = now.plus_ns(POLL_GRACE_NS).min(deadline);
        self.set(now, until);
        self.until_ns.store(until.as_ns().max(1), Ordering::Relaxed);
    }

    /// Takes note that the background thread woke up.
    pub fn disarm(&self) {
        self.until_ns.store(0, Ordering::Relaxed);
    }

    /// Sets the timer again when most of the time is gone; returns whether it did. A polling thread
    /// calls it often. `has_sent`: that thread waits for an answer anyway. `deadline`: when
    /// something is due.
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
        // One of several that poll; and if the sleeper woke meanwhile, the timer may go off in
        // vain.
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
        // All zeros would be no time at all.
        let it_value = timespec(until.since_ns(now).max(1));
        let once = Itimerspec { it_interval: timespec(0), it_value };
        // A descriptor of our own and a time that is valid: it cannot fail.
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

    /// When it goes off.
    fn until(watchdog: &PollWatchdog) -> Time {
        Time::from_ns(watchdog.until_ns.load(Ordering::Relaxed))
    }

    fn never() -> Time {
        Time::NEVER
    }

    #[test]
    fn who_polls_puts_it_off_when_little_is_left() {
        let watchdog = PollWatchdog::new().unwrap();
        watchdog.extend(at(0), true, || unreachable!("nobody sleeps"));
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
        watchdog.extend(at(200_000), true, || unreachable!("nobody sleeps"));
    }

    #[test]
    fn a_deadline_is_kept_while_somebody_polls() {
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
    fn the_time_comes_for_who_sleeps() {
        let watchdog = PollWatchdog::new().unwrap();
        let begin = clock::now();
        watchdog.arm(begin, Time::NEVER);
        let mut waits = [PollFd::new(&watchdog, PollFlags::IN)];
        poll(&mut waits, None).unwrap();
        assert!(clock::now().since_ns(begin) >= POLL_GRACE_NS);
        // What is overdue comes as well.
        watchdog.arm(clock::now(), Time::ZERO);
        poll(&mut waits, None).unwrap();
    }
}
