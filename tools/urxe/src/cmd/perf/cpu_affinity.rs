//! Where the two threads of a ping-pong run.
//!
//! Two threads that sleep in turn may end up on one processor, where one wakes the other without an
//! interrupt, or on two. The two differ by a factor of ten where processors are virtual, and which
//! of them comes is the scheduler's choice, anew for each round: a result would be compared with a
//! floor that stood elsewhere. So each end keeps to a processor of its own while it is measured, as
//! one does with `taskset` for perftest; results and floors alike.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Which end of a ping-pong a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Asks = 0,
    Answers = 1,
}

/// Keeps the calling thread on a processor until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct CpuAffinity {
    before: Option<CpuSet>,
}

impl CpuAffinity {
    /// On the first of the processors that the thread may use, or the second. Left where it is if
    /// there is one only, or if the system does not allow it.
    pub fn to(side: Side) -> Self {
        let Ok(before) = sched_getaffinity(None) else { return Self { before: None } };
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|nr| before.is_set(*nr));
        let place = (before.count() > 1).then(|| allowed.nth(side as usize)).flatten();
        let is_affinity = place.is_some_and(|nr| {
            let mut one = CpuSet::new();
            one.set(nr);
            sched_setaffinity(None, &one).is_ok()
        });
        Self { before: is_affinity.then_some(before) }
    }
}

impl Drop for CpuAffinity {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // What was allowed before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_a_processor_of_its_own_for_a_while() {
        let before = sched_getaffinity(None).unwrap();
        let places = [Side::Asks, Side::Answers].map(|side| {
            let _affinity = CpuAffinity::to(side);
            sched_getaffinity(None).unwrap()
        });
        if before.count() > 1 {
            assert!(places.iter().all(|place| place.count() == 1));
            assert_ne!(places[0], places[1]);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
