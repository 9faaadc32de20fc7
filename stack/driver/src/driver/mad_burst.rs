//! Detects bursts of management datagrams (MADs), such as hundreds of connection requests.
//!
//! | in | decided | out |
//! |---|---|---|
//! | [`THRESHOLD`] MADs within [`WINDOW_NS`], nothing else | a burst | SCHED_BATCH on |
//! | data, or a window with fewer MADs | no burst | SCHED_BATCH off |
//!
//! On a processor that several threads share, each MAD would wake the background thread, which
//! would preempt the thread that sends the next MAD. Each MAD would then cost several context
//! switches. Under SCHED_BATCH the woken thread does not preempt the running thread, and later
//! finds many MADs at once. Data must not wait for that, so the policy applies only while nothing
//! but MADs arrives.

use crate::sys::thread;
use crate::time::Time;

/// MADs within a window that make a burst.
const THRESHOLD: usize = 8;
/// Length of a window in nanoseconds.
const WINDOW_NS: u64 = 20_000_000;

/// Counts the MADs of one background thread, and sets that thread's scheduling policy.
#[derive(Debug)]
pub(super) struct MadBurstDetector {
    window_start: Time,
    count: usize,
    uses_batch_scheduling: bool,
    /// Whether the system allows the policy.
    is_possible: bool,
}

impl MadBurstDetector {
    pub fn new() -> Self {
        Self { window_start: Time::ZERO, count: 0, uses_batch_scheduling: false, is_possible: true }
    }

    /// Records that the calling thread received `mads` MADs; 0 stands for data.
    pub fn record(&mut self, now: Time, mads: usize) {
        let is_over = now.since_ns(self.window_start) >= WINDOW_NS;
        if mads == 0 {
            (self.window_start, self.count) = (now, 0);
            return self.set_sched_batch(false);
        }
        if is_over {
            if self.count < THRESHOLD {
                self.set_sched_batch(false);
            }
            (self.window_start, self.count) = (now, 0);
        }
        self.count += mads;
        if self.count >= THRESHOLD {
            self.set_sched_batch(true);
        }
    }

    fn set_sched_batch(&mut self, batch: bool) {
        if self.uses_batch_scheduling == batch || !self.is_possible {
            return;
        }
        match thread::set_sched_batch(batch) {
            Ok(()) => self.uses_batch_scheduling = batch,
            Err(error) => {
                tracing::debug!(
                    %error,
                    "cannot set SCHED_BATCH: bursts of MADs cost more context switches"
                );
                self.is_possible = false;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_burst_sets_batch_scheduling_and_data_or_quiet_ends_it() {
        let at = |ms: u64| Time::from_ns(1_000_000_000 + ms * 1_000_000);
        let mut burst = MadBurstDetector::new();
        (0..THRESHOLD as u64 - 1).for_each(|ms| burst.record(at(ms), 1));
        assert!(!burst.uses_batch_scheduling, "few are no burst");
        burst.record(at(7), 1);
        if !burst.is_possible {
            return eprintln!("skipped: the system refuses SCHED_BATCH");
        }
        assert!(burst.uses_batch_scheduling);
        burst.record(at(8), 0);
        assert!(!burst.uses_batch_scheduling, "data must not wait");
        burst.record(at(9), 64);
        assert!(burst.uses_batch_scheduling);
        burst.record(at(60), 1);
        burst.record(at(100), 1);
        assert!(!burst.uses_batch_scheduling, "single ones are no burst");
    }
}
