//! A priority queue of times that are entered nearly in order.
//!
//! Each kind of deadline has a constant distance from the present, so a later entry of a kind is
//! due later. The queue therefore has a few lanes, each of them sorted. An entry goes to the end of
//! the lane whose last entry is the nearest one before it (patience sorting). An entry that fits no
//! lane goes to a heap. To insert and to take looks at the ends of the lanes only, whereas a heap
//! of a thousand entries would be sifted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use urxe_types::time::Time;

/// The lanes: for probes, early timeouts, the program's timeouts, and one for times between.
const LANES: usize = 4;

type Entry = (Time, u32);

/// Entries by time, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    lanes: [VecDeque<Entry>; LANES],
    rest: BinaryHeap<Reverse<Entry>>,
}

impl Schedule {
    /// Enters object `index` at `at`.
    pub fn insert(&mut self, at: Time, index: u32) {
        // An empty lane counts as one that ended at time 0: preferred to the heap, but not to a
        // lane with an entry before `at`.
        let end = |lane: &VecDeque<Entry>| lane.back().map_or(Time::ZERO, |(end, _)| *end);
        let nearest =
            self.lanes.iter_mut().filter(|lane| end(lane) <= at).max_by_key(|lane| end(lane));
        match nearest {
            Some(lane) => lane.push_back((at, index)),
            None => self.rest.push(Reverse((at, index))),
        }
    }

    /// Returns the time of the first entry, or [`Time::NEVER`].
    pub fn next(&self) -> Time {
        let in_rest = self.rest.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        self.lanes.iter().map(first).fold(in_rest, Time::min)
    }

    /// Takes the first entry if its time has come.
    pub fn take_due(&mut self, now: Time) -> Option<Entry> {
        let next = self.next();
        if next > now {
            return None;
        }
        match self.lanes.iter_mut().find(|lane| first(lane) == next) {
            Some(lane) => lane.pop_front(),
            None => self.rest.pop().map(|Reverse(entry)| entry),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum::<usize>() + self.rest.len()
    }
}

fn first(lane: &VecDeque<Entry>) -> Time {
    lane.front().map_or(Time::NEVER, |(at, _)| *at)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn first(model: &[Entry]) -> Option<Time> {
        model.iter().map(|(at, _)| *at).min()
    }

    proptest! {
        /// After any sequence of insertions and removals, the next entry is the earliest one left.
        #[test]
        fn entries_come_in_order(steps in vec((0..200_u64, any::<bool>()), 1..400)) {
            let (mut schedule, mut model) = (Schedule::default(), Vec::new());
            for (index, (at, takes)) in steps.into_iter().enumerate() {
                let at = Time::from_ns(at);
                if takes {
                    let due = schedule.take_due(at);
                    let earliest = first(&model).filter(|first| *first <= at);
                    prop_assert_eq!(due.map(|(at, _)| at), earliest);
                    if let Some(entry) = due {
                        let place = model.iter().position(|of| *of == entry);
                        prop_assert!(place.is_some(), "{entry:?} was not entered, or taken before");
                        model.swap_remove(place.unwrap());
                    }
                } else {
                    schedule.insert(at, index as u32);
                    model.push((at, index as u32));
                }
                prop_assert_eq!(schedule.len(), model.len());
                prop_assert_eq!(schedule.next(), first(&model).unwrap_or(Time::NEVER));
            }
        }
    }

    #[test]
    fn deadlines_of_a_few_kinds_need_no_heap() {
        let mut schedule = Schedule::default();
        for now in 0..1000 {
            for (kind, ahead) in [5_000_u64, 40_000, 536_000].into_iter().enumerate() {
                schedule.insert(Time::from_ns(now + ahead), kind as u32);
            }
        }
        assert!(schedule.rest.is_empty());
        assert_eq!(schedule.lanes.iter().filter(|lane| !lane.is_empty()).count(), 3);
    }
}
