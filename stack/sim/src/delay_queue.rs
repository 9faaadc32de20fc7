//! A queue of items that become due at a given time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use urxe_types::time::Time;

/// Items in the order of their due times. Items with the same time keep the order of insertion.
#[derive(Debug)]
pub(crate) struct DelayQueue<T> {
    heap: BinaryHeap<Delayed<T>>,
    next_serial: u64,
}

/// An item of a queue. The greatest item is due first, because the heap is a max-heap.
#[derive(Debug)]
pub(crate) struct Delayed<T> {
    pub(crate) due: Time,
    serial: u64,
    pub(crate) item: T,
}

impl<T> Ord for Delayed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.serial).cmp(&(self.due, self.serial))
    }
}

impl<T> PartialOrd for Delayed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Delayed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Delayed<T> {}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), next_serial: 0 }
    }
}

impl<T> DelayQueue<T> {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the time at which the first item is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.heap.peek().map(|first| first.due)
    }

    pub(crate) fn push(&mut self, due: Time, item: T) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.heap.push(Delayed { due, serial, item });
    }

    /// Removes and returns the first item, if the item is due by `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Delayed<T>> {
        if self.next_due()? <= now { self.heap.pop() } else { None }
    }

    /// Inserts a removed item again, with another time. The item keeps its place among items with
    /// the same time.
    pub(crate) fn put_back(&mut self, delayed: Delayed<T>, due: Time) {
        self.heap.push(Delayed { due, ..delayed });
    }
}
