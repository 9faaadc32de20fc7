//! When each queue pair wants to be looked at again.
//!
//! A deadline moves with every acknowledgement, so it is not kept sorted: a queue pair has (at most a few) entries in a
//! heap, and when one fires the queue pair says what its deadline really is. An entry is added only when none
//! stands at or before the deadline, which on a busy queue pair is once a timeout, not once a packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Time;

/// The deadlines of one device.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(Time, u32)>>>,
    /// The earliest entry, for who only asks.
    next_ns: AtomicU64,
}

impl Timers {
    pub fn new() -> Self {
        Self { heap: Mutex::new(BinaryHeap::new()), next_ns: AtomicU64::new(Time::NEVER.as_ns()) }
    }

    /// The earliest deadline, [`Time::NEVER`] if there is none. It may turn out to have moved.
    pub fn next(&self) -> Time {
        Time::from_ns(self.next_ns.load(Ordering::Acquire))
    }

    /// Has queue pair `index` looked at, at `at`. Whether it became the earliest deadline of all, so that who sleeps must
    /// be told.
    pub fn insert(&self, at: Time, index: u32) -> bool {
        let mut heap = lock(&self.heap);
        let earliest = heap.peek().is_none_or(|Reverse((first, _))| at < *first);
        heap.push(Reverse((at, index)));
        if earliest {
            self.next_ns.store(at.as_ns(), Ordering::Release);
        }
        earliest
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_order_and_only_when_due() {
        let timers = Timers::new();
        assert_eq!(timers.next(), Time::NEVER);
        assert!(timers.insert(Time::from_ns(20), 2));
        assert!(timers.insert(Time::from_ns(10), 1));
        assert!(!timers.insert(Time::from_ns(30), 3));
        assert_eq!(timers.next(), Time::from_ns(10));
        assert_eq!(timers.take_due(Time::from_ns(5)), None);
        assert_eq!(timers.take_due(Time::from_ns(25)), Some((Time::from_ns(10), 1)));
        assert_eq!(timers.take_due(Time::from_ns(25)), Some((Time::from_ns(20), 2)));
        assert_eq!(timers.take_due(Time::from_ns(25)), None);
        assert_eq!(timers.next(), Time::from_ns(30));
    }
}
