//! Entries by time, the earliest first.
//!
//! What a busy device enters comes almost in order already: one kind of deadline is always as far
//! ahead, so that what is entered later is due later. So there are a few lanes, each in order by
//! itself, and an entry goes to the end of the one whose last entry is nearest before it (patience
//! sorting). What fits none goes to a heap. To enter and to take is then a look at the ends of the
//! lanes, where a heap of a thousand would be sifted through.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use urxe_types::time::Time;

/// Kinds of deadlines that are told apart: probes, early timeouts, the program's timeouts, and one
/// for what is between.
const LANES: usize = 4;

type Entry = (Time, u32);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    lanes: [VecDeque<Entry>; LANES],
    rest: BinaryHeap<Reverse<Entry>>,
}

impl Schedule {
    /// Enters thing `index` at `at`.
    pub fn insert(&mut self, at: Time, index: u32) {
        // An empty lane counts as one that ended long ago: taken before the heap is, after any that
        // has something before `at`.
        let end = |lane: &VecDeque<Entry>| lane.back().map_or(Time::ZERO, |(end, _)| *end);
        let nearest =
            self.lanes.iter_mut().filter(|lane| end(lane) <= at).max_by_key(|lane| end(lane));
        match nearest {
            Some(lane) => lane.push_back((at, index)),
            None => self.rest.push(Reverse((at, index))),
        }
    }

    /// The time of the first entry, [`Time::NEVER`] if there is none.
    pub fn next(&self) -> Time {
        let in_rest = self.rest.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        self.lanes.iter().map(first).fold(in_rest, Time::min)
    }

    /// Takes the first entry, if its time has come.
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is entered and taken between, what comes next is the earliest that is left.
        #[test]
        fn entries_come_in_order(steps in proptest::collection::vec((0..200_u64, any::<bool>()), 1..400)) {
            let (mut schedule, mut model) = (Schedule::default(), Vec::new());
            for (index, (at, takes)) in steps.into_iter().enumerate() {
                let at = Time::from_ns(at);
                if takes {
                    let due = schedule.take_due(at);
                    let earliest = model.iter().map(|(at, _)| *at).min().filter(|first| *first <= at);
                    prop_assert_eq!(due.map(|(at, _)| at), earliest);
                    if let Some(entry) = due {
                        let place = model.iter().position(|of| *of == entry);
                        prop_assert!(place.is_some(), "{:?} was not entered, or taken before", entry);
                        model.swap_remove(place.unwrap());
                    }
                } else {
                    schedule.insert(at, index as u32);
                    model.push((at, index as u32));
                }
                prop_assert_eq!(schedule.len(), model.len());
                prop_assert_eq!(schedule.next(), model.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER));
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
