//! Decides whether the background thread looks for packets instead of sleeping. The input is plain
//! values; there is no system call and no lock.
//!
//! A process whose program does not poll answers READs, WRITEs and atomics by this thread. A sleep
//! and a wake-up take longer than such a request itself. So while requests arrive shortly after
//! each other, the thread looks for the next one ([`Spin::until`]).
//!
//! The time of looking is limited to a share of one processor. The share pays for a look that finds
//! nothing, and for the part of another look beyond [`FREE_NS`], because a sleep and a wake-up
//! would have taken that much processor time. The thread also stops looking for a while if another
//! thread wants its processor ([`Spin::on_preempted`]).

use crate::time::Time;

/// The longest time from one request to the next at which the thread looks for it.
const LONGEST_GAP_NS: u64 = 100_000;
/// Short times between requests, one after the other, before the thread looks for the next one.
const SHORT_GAPS: u32 = 2;
/// Nanoseconds after a poll for which the program counts as one that polls. This is longer than
/// other threads usually keep a polling thread from its processor.
const POLLED_NS: u64 = 20_000_000;
/// The processor time that a sleep and a wake-up take, about.
const FREE_NS: u64 = 10_000;
/// The most looking time that a quiet period saves up.
const MOST_SAVED_NS: u64 = 5_000_000;
/// The pause after a look during which another thread wanted the processor. If that happens again
/// soon, the next pause is twice as long, up to the longest one.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const LONGEST_PAUSE_NS: u64 = 64_000_000;
/// A thread that yields its processor for longer than this was preempted by another thread.
const PREEMPTED_NS: u64 = 20_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Spin {
    /// Percent of one processor.
    share: u64,
    /// Nanoseconds of looking that the share pays for now.
    saved_ns: u64,
    /// The time at which `saved_ns` was computed.
    saved_at: Time,
    arrived_at: Time,
    short_gaps: u32,
    pause_ns: u64,
    paused_until: Time,
}

impl Spin {
    /// Starts without a request. `share` is in percent of one processor; 0 means never to look.
    /// `processors` is the number of processors of the process. On a single one the thread never
    /// looks, because the requesting thread may need it.
    pub fn new(share: u8, processors: u32) -> Self {
        let share = if processors > 1 { u64::from(share.min(100)) } else { 0 };
        Self {
            share,
            saved_ns: 0,
            saved_at: Time::ZERO,
            arrived_at: Time::ZERO,
            short_gaps: 0,
            pause_ns: FIRST_PAUSE_NS,
            paused_until: Time::ZERO,
        }
    }

    /// Records that packets arrived. They let the thread look for others unless:
    ///
    /// - `is_stream`: they are part of a stream of data, which has rules of its own (`Burst`). If
    ///   other threads want to run, the scheduler prefers a thread that slept to one that looked,
    ///   and a stream needs the processor for longer.
    /// - A thread polled at `polled_at`, which is not long ago. That thread receives, or is about
    ///   to.
    pub fn on_arrival(&mut self, now: Time, is_stream: bool, polled_at: Time) {
        if is_stream || now.since_ns(polled_at) < POLLED_NS {
            self.short_gaps = 0;
            return;
        }
        let gap_ns = now.since_ns(self.arrived_at);
        self.short_gaps =
            if gap_ns <= LONGEST_GAP_NS { self.short_gaps.saturating_add(1) } else { 0 };
        self.arrived_at = now;
    }

    /// Returns the time until which to look for packets, or `None` to sleep at once.
    pub fn until(&mut self, now: Time) -> Option<Time> {
        if self.share == 0 || self.short_gaps < SHORT_GAPS || now < self.paused_until {
            return None;
        }
        let until = self.arrived_at.plus_ns(LONGEST_GAP_NS);
        self.save(now);
        (now < until && self.saved_ns >= until.since_ns(now)).then_some(until)
    }

    /// Records a look from `from` to `now`, and whether it found packets.
    pub fn on_look(&mut self, from: Time, now: Time, found: bool) {
        self.save(now);
        let took_ns = now.since_ns(from);
        let cost_ns = if found { took_ns.saturating_sub(FREE_NS) } else { took_ns };
        self.saved_ns = self.saved_ns.saturating_sub(cost_ns);
    }

    /// Records that the thread yielded its processor from `from` to `now`. Returns whether another
    /// thread used the processor meanwhile, so that this thread must sleep.
    pub fn on_yield(&mut self, from: Time, now: Time) -> bool {
        if now.since_ns(from) <= PREEMPTED_NS {
            return false;
        }
        let is_next = from.since_ns(self.paused_until) <= self.pause_ns;
        self.pause_ns =
            if is_next { (self.pause_ns * 2).min(LONGEST_PAUSE_NS) } else { FIRST_PAUSE_NS };
        self.paused_until = now.plus_ns(self.pause_ns);
        true
    }

    /// Adds the looking time of the period since the last call.
    fn save(&mut self, now: Time) {
        let period_ns = now.since_ns(self.saved_at).min(MOST_SAVED_NS * 100);
        self.saved_ns = (self.saved_ns + period_ns * self.share / 100).min(MOST_SAVED_NS);
        self.saved_at = now;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const START: Time = Time::from_ns(10_000_000_000);

    /// A device with one requesting peer.
    struct Target {
        spin: Spin,
        now: Time,
        looked_ns: u64,
        slept: u32,
        found: u32,
    }

    impl Target {
        fn new(share: u8, processors: u32) -> Self {
            let spin = Spin::new(share, processors);
            Self { spin, now: START, looked_ns: 0, slept: 0, found: 0 }
        }

        /// Handles `count` requests, each `gap_ns` after the one before.
        fn requests(&mut self, count: u32, gap_ns: u64) -> &mut Self {
            for _ in 0..count {
                let (from, next) = (self.now, self.now.plus_ns(gap_ns));
                match self.spin.until(from) {
                    Some(until) => {
                        let found = next < until;
                        let end = if found { next } else { until };
                        self.looked_ns += end.since_ns(from);
                        self.spin.on_look(from, end, found);
                        self.found += u32::from(found);
                    }
                    None => self.slept += 1,
                }
                self.now = next;
                self.spin.on_arrival(next, false, Time::ZERO);
            }
            self
        }
    }

    #[test]
    fn requests_close_to_each_other_are_found_without_a_sleep() {
        let mut target = Target::new(20, 2);
        target.requests(100_000, 5_000);
        assert!(target.slept <= SHORT_GAPS + 1, "{}", target.slept);
    }

    #[test]
    fn looking_takes_no_more_than_its_share() {
        for gap_ns in [30_000, 60_000, 99_000] {
            let mut target = Target::new(20, 2);
            target.requests(100_000, gap_ns);
            let time_ns = target.now.since_ns(START);
            // What sleeps and wake-ups would have taken does not count.
            let free_ns = u64::from(target.found) * FREE_NS;
            let share = (target.looked_ns - free_ns) as f64 / time_ns as f64;
            assert!((0.15..=0.21).contains(&share), "{gap_ns}: {share}");
        }
    }

    #[test]
    fn single_requests_and_rare_ones_let_the_thread_sleep() {
        let mut target = Target::new(100, 2);
        target.requests(1000, LONGEST_GAP_NS + 1);
        assert_eq!((target.looked_ns, target.slept), (0, 1000));
        // The end of a series costs one look in vain.
        target.requests(10, 1000).requests(1000, LONGEST_GAP_NS * 2);
        assert!(target.looked_ns <= 10_000 + LONGEST_GAP_NS, "{}", target.looked_ns);
    }

    #[test]
    fn streams_of_data_and_polling_programs_do_not_let_the_thread_look() {
        let mut target = Target::new(100, 2);
        let ago = |now: Time, ns: u64| Time::from_ns(now.as_ns() - ns);
        for (is_stream, polled_ago_ns, looks) in [
            (false, POLLED_NS, true),
            (true, POLLED_NS, false),
            (false, POLLED_NS - 1, false),
            (false, 0, false),
        ] {
            target.requests(10, 1000);
            assert!(target.spin.until(target.now).is_some());
            target.spin.on_arrival(target.now, is_stream, ago(target.now, polled_ago_ns));
            assert_eq!(target.spin.until(target.now).is_some(), looks);
        }
    }

    #[test]
    fn a_share_of_zero_and_a_single_processor_never_look() {
        for (share, processors) in [(0, 2), (20, 1), (100, 0)] {
            let mut target = Target::new(share, processors);
            target.requests(1000, 1000);
            assert_eq!((target.looked_ns, target.slept), (0, 1000));
        }
    }

    #[test]
    fn a_thread_that_others_preempt_sleeps_for_longer_and_longer() {
        let mut target = Target::new(100, 2);
        target.requests(10, 1000);
        assert!(!target.spin.on_yield(target.now, target.now.plus_ns(PREEMPTED_NS)));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            // The other thread runs for milliseconds.
            let (from, end) = (target.now, target.now.plus_ns(3_000_000));
            assert!(target.spin.on_yield(from, end));
            target.now = end;
            while target.spin.until(target.now).is_none() {
                target.requests(1, 1000);
            }
            pauses.push(target.now.since_ns(end) / 1_000_000);
        }
        assert_eq!(pauses[..3], [1, 2, 4]);
        assert_eq!(pauses[9], LONGEST_PAUSE_NS / 1_000_000);
        // Later, the first pause is short again.
        target.now = target.now.plus_ns(LONGEST_PAUSE_NS + 1);
        let end = target.now.plus_ns(PREEMPTED_NS + 1);
        assert!(target.spin.on_yield(target.now, end));
        assert_eq!(target.spin.paused_until.since_ns(end), FIRST_PAUSE_NS);
    }
}
