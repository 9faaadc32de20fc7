//! Queue pairs that wait for room in a budget of their path.
//!
//! They get it in their order, and whoever is first and finds too little ends the round: a thousand
//! that wait are not all asked each time that there is room for one. Who has something to send and
//! does not wait may take what room there is before them: most often it was acknowledged just now,
//! all of it is in a cache, and its next packets go out with others. That is so some dozens of
//! times; then nobody begins anything new before who has been first for so long.
//!
//! Who finds no room when something is posted is *blocked at a post*, and goes to the end of the
//! queue without being asked at all.

use std::collections::VecDeque;

/// So often others may go before the first one.
pub(super) const MAX_BYPASSES: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AdmissionQueue {
    waiting: VecDeque<u32>,
    bypasses: u32,
}

impl AdmissionQueue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queue pair `index` goes behind all others.
    pub fn push_back(&mut self, index: u32) {
        self.waiting.push_back(index);
    }

    /// Those that `append` puts behind all others join.
    pub fn append(&mut self, append: impl FnOnce(&mut VecDeque<u32>)) {
        append(&mut self.waiting);
    }

    /// The first one leaves the queue, to get its turn.
    pub fn pop_front(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    /// There was too little room for it: it is the first one again.
    pub fn push_front(&mut self, index: u32) {
        self.waiting.push_front(index);
    }

    /// A run is over, in which some that waited could send, or others that did not wait.
    pub fn record_run(&mut self, first_went: bool, others_went: bool) {
        if first_went || self.is_empty() {
            self.bypasses = 0;
        } else if others_went {
            self.bypasses = self.bypasses.saturating_add(1);
        }
    }

    /// Whether others must let the first one go before them.
    pub fn is_starved(&self) -> bool {
        self.bypasses >= MAX_BYPASSES && !self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_passed_over_often_enough_goes_before_others_until_it_went() {
        let mut queue = AdmissionQueue::default();
        for _ in 0..2 * MAX_BYPASSES {
            queue.record_run(false, true);
            assert!(!queue.is_starved(), "nobody waits");
        }
        queue.push_back(7);
        for _ in 1..MAX_BYPASSES {
            queue.record_run(false, true);
            // Nobody was before it.
            queue.record_run(false, false);
            assert!(!queue.is_starved());
        }
        queue.record_run(false, true);
        assert!(queue.is_starved());
        assert_eq!(queue.pop_front(), Some(7));
        queue.push_front(7);
        queue.push_back(8);
        queue.record_run(false, false);
        assert!(queue.is_starved(), "there was too little room for it");
        assert_eq!(queue.pop_front(), Some(7));
        queue.record_run(true, false);
        assert!(!queue.is_starved());
        assert_eq!((queue.pop_front(), queue.pop_front()), (Some(8), None));
    }
}
