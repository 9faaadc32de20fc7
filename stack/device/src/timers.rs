//! When things want to be looked at again: queue pairs, and completion queues whose events are held
//! back.
//!
//! A deadline moves with every acknowledgement, so it is not followed: a queue pair has (at most a
//! few) entries, and when one fires the queue pair says what its deadline really is. An entry is
//! added only when none stands at or before the deadline, which on a busy queue pair is once a
//! timeout, not once a packet.

mod schedule;

use self::schedule::Schedule;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::time::Time;
use urxe_types::wake::Wake;

/// The deadlines of one kind of thing on one device, things by index.
pub(crate) struct Timers {
    schedule: Mutex<Schedule>,
    /// The earliest entry, for who only asks.
    next_ns: AtomicU64,
    /// Woken when the earliest entry became earlier, so that who sleeps sleeps shorter.
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

    /// The earliest deadline, [`Time::NEVER`] if there is none. It may turn out to have moved.
    pub fn next(&self) -> Time {
        Time::from_ns(self.next_ns.load(Ordering::Acquire))
    }

    /// Has thing `index` looked at, at `at`.
    pub fn insert(&self, at: Time, index: u32) {
        let mut schedule = lock(&self.schedule);
        // Stored under the lock alone, so that this is what the schedule begins with.
        let earliest = at < self.next();
        schedule.insert(at, index);
        if earliest {
            self.next_ns.store(at.as_ns(), Ordering::Release);
            drop(schedule);
            self.wake.wake();
        }
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
