//! Deadlines of queue pairs, and of completion queues whose events are delayed.
//!
//! A deadline moves with every acknowledgement, and the timers do not follow it. A queue pair has
//! at most a few entries. When an entry expires, the queue pair computes its actual deadline. The
//! device adds an entry only if none stands at or before the deadline: on a busy queue pair once a
//! timeout, not once a packet.

mod schedule;

use self::schedule::Schedule;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::time::Time;
use urxe_types::wake::Wake;

/// The deadlines of one kind of object of a device, by index.
pub(crate) struct Timers {
    schedule: Mutex<Schedule>,
    /// The earliest entry, for readers without the lock.
    next_ns: AtomicU64,
    /// Called when the earliest entry moves to an earlier time, so that a sleeping thread can
    /// shorten its wait.
    wake: Arc<dyn Wake>,
}

impl Timers {
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self {
            schedule: Mutex::new(Schedule::default()),
            next_ns: AtomicU64::new(Time::NEVER.as_ns()),
            wake,
        }
    }

    /// Returns the earliest entry, or [`Time::NEVER`]. The deadline itself may be later.
    pub fn next(&self) -> Time {
        Time::from_ns(self.next_ns.load(Ordering::Acquire))
    }

    /// Adds an entry for object `index` at the time `at`.
    pub fn insert(&self, at: Time, index: u32) {
        let mut schedule = lock(&self.schedule);
        // Only stored under the lock, so this is the schedule's first entry.
        let earliest = at < self.next();
        schedule.insert(at, index);
        if earliest {
            self.next_ns.store(at.as_ns(), Ordering::Release);
            drop(schedule);
            self.wake.wake();
        }
    }

    /// Wakes the thread that sleeps until the earliest entry, because there is other work.
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// Takes one entry whose time has come.
    pub fn take_due(&self, now: Time) -> Option<(Time, u32)> {
        if self.next() > now {
            return None;
        }
        let mut schedule = lock(&self.schedule);
        let due = schedule.take_due(now);
        self.next_ns.store(schedule.next().as_ns(), Ordering::Release);
        due
    }
}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("next", &self.next()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use urxe_types::sync::atomic::AtomicU32;

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn entries_come_in_order_and_only_when_due() {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let wakes = || count.0.load(Ordering::Relaxed);
        let timers = Timers::new(count.clone());
        assert_eq!(timers.next(), Time::NEVER);
        timers.insert(Time::from_ns(20), 2);
        assert_eq!(wakes(), 1);
        timers.insert(Time::from_ns(10), 1);
        assert_eq!(wakes(), 2);
        timers.insert(Time::from_ns(30), 3);
        assert_eq!(wakes(), 2, "it was not the earliest");
        assert_eq!(timers.next(), Time::from_ns(10));
        assert_eq!(timers.take_due(Time::from_ns(5)), None);
        assert_eq!(timers.take_due(Time::from_ns(25)), Some((Time::from_ns(10), 1)));
        assert_eq!(timers.take_due(Time::from_ns(25)), Some((Time::from_ns(20), 2)));
        assert_eq!(timers.take_due(Time::from_ns(25)), None);
        assert_eq!(timers.next(), Time::from_ns(30));
    }
}
