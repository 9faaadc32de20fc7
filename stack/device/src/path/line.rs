//! Queue pairs that wait for room in a budget of their path.
//!
//! They get it in their order, and whoever is first and finds too little ends the round: a thousand
//! that wait are not all asked each time that there is room for one. Who has something to send and
//! does not wait may take what room there is before them: most often it was acknowledged just now,
//! all of it is in a cache, and its next packets go out with others. That is so some dozens of
//! times; then nobody begins anything new before who has been first for so long.
//!
//! Who finds no room when something is posted *comes late*, and goes to the end of the line without
//! being asked at all.

use std::collections::VecDeque;

/// So often others may go before the first one.
pub(super) const PATIENCE: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: VecDeque<u32>,
    passed_over: u32,
}

impl Line {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queue pair `index` goes behind all others.
    pub fn join(&mut self, index: u32) {
        self.waiting.push_back(index);
    }

    /// Those that `append` puts behind all others join.
    pub fn join_all(&mut self, append: impl FnOnce(&mut VecDeque<u32>)) {
        append(&mut self.waiting);
    }

    /// The first one leaves the line, to get its turn.
    pub fn take_first(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    /// There was too little room for it: it is the first one again.
    pub fn put_back(&mut self, index: u32) {
        self.waiting.push_front(index);
    }

    /// A run is over, in which some that waited could send, or others that did not wait.
    pub fn note_run(&mut self, first_went: bool, others_went: bool) {
        if first_went || self.is_empty() {
            self.passed_over = 0;
        } else if others_went {
            self.passed_over = self.passed_over.saturating_add(1);
        }
    }

    /// Whether others must let the first one go before them.
    pub fn has_waited_enough(&self) -> bool {
        self.passed_over >= PATIENCE && !self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_passed_over_often_enough_goes_before_others_until_it_went() {
        let mut line = Line::default();
        for _ in 0..2 * PATIENCE {
            line.note_run(false, true);
            assert!(!line.has_waited_enough(), "nobody waits");
        }
        line.join(7);
        for _ in 1..PATIENCE {
            line.note_run(false, true);
            // Nobody was before it.
            line.note_run(false, false);
            assert!(!line.has_waited_enough());
        }
        line.note_run(false, true);
        assert!(line.has_waited_enough());
        assert_eq!(line.take_first(), Some(7));
        line.put_back(7);
        line.join(8);
        line.note_run(false, false);
        assert!(line.has_waited_enough(), "there was too little room for it");
        assert_eq!(line.take_first(), Some(7));
        line.note_run(true, false);
        assert!(!line.has_waited_enough());
        assert_eq!((line.take_first(), line.take_first()), (Some(8), None));
    }
}
