//! The processors of the two threads of a ping-pong.
//!
//! Two threads that sleep alternately may run on one processor, where one wakes the other without
//! an interrupt, or on two. On virtual processors the two differ by a factor of ten. The scheduler
//! chooses anew for each round, so results and baselines would not be comparable. Therefore each
//! end is bound to its own processor while it is measured, as with `taskset` for perftest. This
//! applies to results and baselines.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The end of a ping-pong that a thread serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Asks = 0,
    Answers = 1,
}

/// Binds the calling thread to a processor until dropped.
#[derive(Debug)]
#[must_use]
pub struct CpuAffinity {
    before: Option<CpuSet>,
}

impl CpuAffinity {
    /// Binds the thread to the first or second processor that it may use. Has no effect with a
    /// single processor, or if the system refuses.
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
            // Restores the previous affinity.
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
