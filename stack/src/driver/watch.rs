//! How the background thread sleeps beside a thread that polls.
//!
//! It must be there a millisecond after the last poll at the latest: acknowledgements may be owed, and nobody else sends them. Were it
//! to wake each millisecond to see about that, each time would take a processor from a polling thread for some 20 µs, and where two
//! processes poll on two processors, two round trips in a hundred would last so much longer. So the polling thread itself puts the
//! sleeper's time off, by one system call in half a millisecond; when it stops polling, the time comes.
//!
//! ```text
//!   background:  set the timer, a millisecond on   sleep ............................... wake: nobody has polled for a while
//!   polls:       | | | | | |  half of it is gone: a millisecond from now | | | | | | |
//! ```
//! Deadlines of the device count like the millisecond: what came up since the timer was set is found when it is set again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::background::timespec;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::time::Time;

/// From the last poll to the wake-up at most.
const LEAVE_NS: u64 = 1_000_000;

/// The timer that wakes the background thread while some thread polls.
#[derive(Debug)]
pub(super) struct Watch {
    timer: OwnedFd,
    /// When it goes off; 0 while nobody sleeps on it.
    until_ns: AtomicU64,
}

impl Watch {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { timer, until_ns: AtomicU64::new(0) })
    }

    /// Called by the thread that is about to sleep: something is due at `deadline`.
    pub fn begin(&self, now: Time, deadline: Time) {
        let until = now.plus_ns(LEAVE_NS).min(deadline);
        self.set(now, until);
        self.until_ns.store(until.as_ns().max(1), Ordering::Relaxed);
    }

    /// Called when it woke.
    pub fn end(&self) {
        self.until_ns.store(0, Ordering::Relaxed);
    }

    /// Called by a thread that polls, often: puts the wake-up off when half of the time is gone. `deadline`: when something is due.
    pub fn put_off(&self, now: Time, deadline: impl FnOnce() -> Time) {
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        if until_ns == 0 || until_ns > now.as_ns() + LEAVE_NS / 2 {
            return;
        }
        let until = now.plus_ns(LEAVE_NS).min(deadline());
        let until_ns_new = until.as_ns().max(1);
        if until_ns_new == until_ns {
            return; // a deadline that is near
        }
        // One of several that poll; and if the sleeper woke meanwhile, the timer may go off in vain.
        let swapped =
            self.until_ns.compare_exchange(until_ns, until_ns_new, Ordering::Relaxed, Ordering::Relaxed);
        if swapped.is_ok() {
            self.set(now, until);
        }
    }

    fn set(&self, now: Time, until: Time) {
        // All zeros would be no time at all.
        let it_value = timespec(until.since_ns(now).max(1));
        let once = Itimerspec { it_interval: timespec(0), it_value };
        // A descriptor of our own and a time that is valid: it cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl AsFd for Watch {
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
    fn until(watch: &Watch) -> Time {
        Time::from_ns(watch.until_ns.load(Ordering::Relaxed))
    }

    fn never() -> Time {
        Time::NEVER
    }

    #[test]
    fn who_polls_puts_it_off_when_half_of_the_time_is_gone() {
        let watch = Watch::new().unwrap();
        watch.put_off(at(0), || unreachable!("nobody sleeps"));
        watch.begin(at(0), Time::NEVER);
        assert_eq!(until(&watch), at(1000));
        watch.put_off(at(499), || unreachable!("more than half is left"));
        assert_eq!(until(&watch), at(1000));
        for us in (500..100_000).step_by(500) {
            watch.put_off(at(us), never);
            assert_eq!(until(&watch), at(us + 1000));
        }
        watch.end();
        watch.put_off(at(200_000), || unreachable!("nobody sleeps"));
    }

    #[test]
    fn a_deadline_is_kept_while_somebody_polls() {
        let watch = Watch::new().unwrap();
        watch.begin(at(0), at(700));
        assert_eq!(until(&watch), at(700));
        watch.put_off(at(600), || at(700));
        assert_eq!(until(&watch), at(700), "as it was");
        watch.put_off(at(600), || at(1300));
        assert_eq!(until(&watch), at(1300), "it is due later now");
        watch.put_off(at(1000), || at(900));
        assert_eq!(until(&watch), at(900), "and was due meanwhile");
    }

    #[test]
    fn the_time_comes_for_who_sleeps() {
        let watch = Watch::new().unwrap();
        let begin = clock::now();
        watch.begin(begin, Time::NEVER);
        let mut waits = [PollFd::new(&watch, PollFlags::IN)];
        poll(&mut waits, None).unwrap();
        assert!(clock::now().since_ns(begin) >= LEAVE_NS);
        // What is overdue comes as well.
        watch.begin(clock::now(), Time::ZERO);
        poll(&mut waits, None).unwrap();
    }
}
