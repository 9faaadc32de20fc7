//! When things want to be looked at again: queue pairs, and completion queues whose events are held back.
//!
//! A deadline moves with every acknowledgement, so it is not kept sorted: a queue pair has (at most a few) entries in a
//! heap, and when one fires the queue pair says what its deadline really is. An entry is added only when none
//! stands at or before the deadline, which on a busy queue pair is once a timeout, not once a packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cq::Wake;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::time::Time;

/// The deadlines of one kind of thing on one device, things by index.
pub(crate) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(Time, u32)>>>,
    /// The earliest entry, for who only asks.
    next_ns: AtomicU64,
    /// Woken when the earliest entry became earlier, so that who sleeps sleeps shorter.
    wake: Arc<dyn Wake>,
}

impl Timers {
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self { heap: Mutex::new(BinaryHeap::new()), next_ns: AtomicU64::new(Time::NEVER.as_ns()), wake }
    }

    /// The earliest deadline, [`Time::NEVER`] if there is none. It may turn out to have moved.
    pub fn next(&self) -> Time {
        Time::from_ns(self.next_ns.load(Ordering::Acquire))
    }

    /// Has thing `index` looked at, at `at`.
    pub fn insert(&self, at: Time, index: u32) {
        let mut heap = lock(&self.heap);
        let earliest = heap.peek().is_none_or(|Reverse((first, _))| at < *first);
        heap.push(Reverse((at, index)));
        if earliest {
            self.next_ns.store(at.as_ns(), Ordering::Release);
            drop(heap);
            self.wake.wake();
        }
    }

    /// How many entries there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        lock(&self.heap).len()
    }

    /// Takes one entry whose time has come.
    pub fn take_due(&self, now: Time) -> Option<(Time, u32)> {
        if self.next() > now {
            return None;
        }
        let mut heap = lock(&self.heap);
        let Reverse(first) = *heap.peek()?;
        if first.0 > now {
            return None;
        }
        heap.pop();
        let next = heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        self.next_ns.store(next.as_ns(), Ordering::Release);
        Some(first)
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
    use crate::sync::atomic::AtomicU32;

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
