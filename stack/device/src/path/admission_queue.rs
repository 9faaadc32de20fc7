//! The queue pairs of a path that wait for one credit.
//!
//! Queue pairs get credit in first-in, first-out order. If there is too little for the first one,
//! the round tries no other, so a little credit does not cost a turn of each of a thousand queue
//! pairs.
//!
//! Queue pairs that are ready and do not wait may take credit before them. They were most often
//! acknowledged just now: their state is in a cache, and their next packets share a run. After
//! [`MAX_BYPASSES`] such runs they must yield to the first one.
//!
//! A queue pair *blocked at a post* goes to the end of the queue without a turn: it had nothing
//! else to send and found no room when requests were posted.

use std::collections::VecDeque;

/// The runs of other queue pairs that may bypass the first one.
pub(super) const MAX_BYPASSES: u32 = 64;

/// The indices of the queue pairs, and the runs that bypassed the first one.
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

    /// Adds queue pair `index` behind all others.
    pub fn push_back(&mut self, index: u32) {
        self.waiting.push_back(index);
    }

    /// Lets `append` add queue pairs behind all others.
    pub fn append(&mut self, append: impl FnOnce(&mut VecDeque<u32>)) {
        append(&mut self.waiting);
    }

    /// Takes the first queue pair out for its turn.
    pub fn pop_front(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    /// Puts a queue pair back that found too little room: it is the first one again.
    pub fn push_front(&mut self, index: u32) {
        self.waiting.push_front(index);
    }

    /// Records a run: `first_went` if queue pairs of this queue sent in it, `others_went` if queue
    /// pairs that did not wait sent in it.
    pub fn record_run(&mut self, first_went: bool, others_went: bool) {
        if first_went || self.is_empty() {
            self.bypasses = 0;
        } else if others_went {
            self.bypasses = self.bypasses.saturating_add(1);
        }
    }

    /// Returns whether ready queue pairs must yield to the first one.
    pub fn is_starved(&self) -> bool {
        self.bypasses >= MAX_BYPASSES && !self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_that_was_bypassed_too_often_goes_first_until_it_has_sent() {
        let mut queue = AdmissionQueue::default();
        for _ in 0..2 * MAX_BYPASSES {
            queue.record_run(false, true);
            assert!(!queue.is_starved(), "no queue pair waits");
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
