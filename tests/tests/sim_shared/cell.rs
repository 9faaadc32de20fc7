//! Eight bytes of the server that one connection changes by atomic operations, which are carried
//! out in order and once each.

use std::collections::VecDeque;

/// What a cell holds, as far as its connection can know.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// After the last change that is known to be made.
    done: u64,
    /// After each change that was posted and has not completed.
    open: VecDeque<u64>,
}

impl Cell {
    pub fn new(value: u64) -> Self {
        Self { done: value, open: VecDeque::new() }
    }

    /// What it held after the last operation that has completed.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// What it holds once all that was posted is done: what the next operation finds.
    pub fn last(&self) -> u64 {
        self.open.back().copied().unwrap_or(self.done)
    }

    /// An operation was posted that leaves this value.
    pub fn change(&mut self, value: u64) {
        self.open.push_back(value);
    }

    /// The oldest operation has completed.
    pub fn complete(&mut self) {
        if let Some(value) = self.open.pop_front() {
            self.done = value;
        }
    }

    /// Whether it may hold this now: some of what is open may be done already, but only in order.
    pub fn may_hold(&self, value: u64) -> bool {
        self.done == value || self.open.contains(&value)
    }
}
