//! Decides how the background thread waits and how long it reads. The input is plain values; there
//! is no system call and no lock.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | [`Situation`]: the threads that poll or lead | [`Wait::choose`] | [`Wait`]: how to sleep |
//! | [`Due`]: the deadlines | [`Wait::deadline`] | when to wake up at the latest |
//! | a thread polled during the sleep | [`Wait::receives`] | whether to read the sockets |
//! | [`Burst`]: the reads so far | [`Burst::next`] | [`NextRead`]: read again or stop |

use std::ops::RangeInclusive;

use super::poll_set::Entry;
use crate::time::Time;

/// Nanoseconds after a poll for which the polling thread is expected to poll again.
const POLLED_NS: u64 = 1_000_000;
/// Batches received in a row before the thread does other work.
const MAX_BATCHES: usize = 64;
/// Empty reads after a batch of a stream before the thread sleeps. The next run arrives sooner than
/// a sleep and a wake-up take. Before each read the thread yields the processor. After small
/// messages the thread sleeps at once, because the scheduler prefers sleeping threads to spinning
/// ones.
const MAX_EMPTY_READS: usize = 32;

/// The other threads of the engine that may read the sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub now: Time,
    /// Whether a thread waits for completions and sleeps on the sockets.
    pub has_leader: bool,
    /// The time of the last poll.
    pub polled_at: Time,
    /// The time until which this thread sleeps on the sockets although a thread polls, because that
    /// thread left packets in them.
    pub watched_until: Time,
}

/// How the background thread waits. See [`super::super`] for the three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A leader sleeps on the sockets.
    Led,
    /// A thread polls. It reads the sockets and keeps the deadlines of the queue pairs.
    Polled,
    /// No other thread reads the sockets.
    Idle,
}

/// The deadlines, by subject.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// Queue pairs, connections, deferred MADs, the end of the common sockets' backoff.
    pub protocol: Option<Time>,
    /// The clean-up of the sockets of ended processes.
    pub orphan_cleanup: Option<Time>,
    /// Packets that a simulated impairment delays.
    pub delayed: Option<Time>,
}

impl Wait {
    /// Returns how to wait.
    pub fn choose(situation: &Situation) -> Self {
        let Situation { now, has_leader, polled_at, watched_until } = *situation;
        if has_leader {
            Self::Led
        } else if now.since_ns(polled_at) < POLLED_NS && now >= watched_until {
            Self::Polled
        } else {
            Self::Idle
        }
    }

    /// Returns the descriptors to sleep on.
    pub fn entries(self) -> RangeInclusive<Entry> {
        match self {
            Self::Led => Entry::Waker..=Entry::Shared,
            Self::Polled => Entry::Watchdog..=Entry::Shared,
            Self::Idle => Entry::Waker..=Entry::Socket,
        }
    }

    /// Returns when to wake up at the latest; [`Time::ZERO`] means not to sleep. `has_leader`: a
    /// thread still leads right before the sleep.
    pub fn deadline(self, due: &Due, has_leader: bool) -> Option<Time> {
        let Due { protocol, orphan_cleanup, delayed } = *due;
        match self {
            // The leader left before this thread slept, so it will not wake this thread.
            Self::Led if !has_leader => Some(Time::ZERO),
            // The leader delivers delayed packets.
            Self::Led => earliest([protocol, orphan_cleanup, None]),
            // The watchdog keeps the other deadlines.
            Self::Polled => orphan_cleanup,
            Self::Idle => earliest([protocol, orphan_cleanup, delayed]),
        }
    }

    /// Returns whether to read the sockets after the sleep. `was_polled`: a thread polled
    /// during the sleep.
    pub fn receives(self, was_polled: bool) -> bool {
        match self {
            Self::Led => false,
            Self::Polled => !was_polled,
            Self::Idle => true,
        }
    }
}

fn earliest(deadlines: [Option<Time>; 3]) -> Option<Time> {
    deadlines.into_iter().flatten().min()
}

/// A series of reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// Reads that found packets.
    pub batches: usize,
    /// Reads without a packet since the last batch.
    empty_reads: usize,
}

/// Whether to read the sockets again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextRead {
    /// At once.
    Again,
    /// After yielding the processor.
    Yield,
    /// No more.
    Stop,
}

impl Burst {
    /// Records a read of `received` datagrams and returns the next step. `is_streaming`: the
    /// last batch was part of a stream of data. `is_taken`: another thread polls or waits, and must
    /// find the sockets free.
    pub fn next(&mut self, received: usize, is_streaming: bool, is_taken: bool) -> NextRead {
        if received > 0 {
            self.batches += 1;
            self.empty_reads = 0;
            return if self.batches < MAX_BATCHES { NextRead::Again } else { NextRead::Stop };
        }
        if self.batches == 0 || !is_streaming || is_taken || self.empty_reads == MAX_EMPTY_READS {
            return NextRead::Stop;
        }
        self.empty_reads += 1;
        NextRead::Yield
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_leader_comes_before_a_polling_thread_and_unread_packets_before_that() {
        let alone = Situation {
            now: ms(1000),
            has_leader: false,
            polled_at: Time::ZERO,
            watched_until: Time::ZERO,
        };
        let polled = Situation { polled_at: Time::from_ns(999_000_001), ..alone };
        assert_eq!(Wait::choose(&alone), Wait::Idle);
        assert_eq!(Wait::choose(&polled), Wait::Polled);
        assert_eq!(Wait::choose(&Situation { polled_at: ms(999), ..alone }), Wait::Idle);
        assert_eq!(Wait::choose(&Situation { watched_until: ms(1001), ..polled }), Wait::Idle);
        assert_eq!(Wait::choose(&Situation { watched_until: ms(1000), ..polled }), Wait::Polled);
        for situation in [alone, polled, Situation { watched_until: ms(1001), ..polled }] {
            assert_eq!(Wait::choose(&Situation { has_leader: true, ..situation }), Wait::Led);
        }
    }

    #[test]
    fn each_wait_keeps_the_deadlines_that_no_other_thread_keeps() {
        let due = Due { protocol: Some(ms(3)), orphan_cleanup: Some(ms(4)), delayed: Some(ms(2)) };
        assert_eq!(Wait::Led.deadline(&due, true), Some(ms(3)));
        assert_eq!(Wait::Polled.deadline(&due, false), Some(ms(4)));
        assert_eq!(Wait::Idle.deadline(&due, false), Some(ms(2)));
        let without_leader = Wait::Led.deadline(&due, false);
        assert_eq!(without_leader, Some(Time::ZERO), "no leader wakes this thread");
        let none = Due { protocol: None, orphan_cleanup: None, delayed: None };
        for wait in [Wait::Led, Wait::Polled, Wait::Idle] {
            assert_eq!(wait.deadline(&none, true), None);
        }
    }

    #[test]
    fn the_sockets_are_read_only_where_no_other_thread_reads_them() {
        for (wait, was_polled, receives) in [
            (Wait::Led, false, false),
            (Wait::Led, true, false),
            (Wait::Polled, false, true),
            (Wait::Polled, true, false),
            (Wait::Idle, false, true),
            (Wait::Idle, true, true),
        ] {
            assert_eq!(wait.receives(was_polled), receives, "{wait:?}");
            assert_eq!(wait.entries().contains(&Entry::Socket), wait == Wait::Idle);
            assert_eq!(wait.entries().contains(&Entry::Watchdog), wait == Wait::Polled);
            for always in [Entry::Waker, Entry::Changes, Entry::Shared] {
                assert!(wait.entries().contains(&always));
            }
        }
    }

    #[test]
    fn reads_go_on_behind_a_stream_until_enough_were_in_vain() {
        assert_eq!(Burst::default().next(0, true, false), NextRead::Stop, "nothing came at all");
        let mut burst = Burst::default();
        assert_eq!(burst.next(4, false, false), NextRead::Again);
        assert_eq!({ burst }.next(0, false, false), NextRead::Stop, "no stream");
        assert_eq!({ burst }.next(0, true, true), NextRead::Stop, "another thread reads");
        for _ in 0..2 {
            for _ in 0..MAX_EMPTY_READS {
                assert_eq!(burst.next(0, true, false), NextRead::Yield);
            }
            assert_eq!({ burst }.next(0, true, false), NextRead::Stop);
            assert_eq!(
                burst.next(1, true, false),
                NextRead::Again,
                "a batch starts the count anew"
            );
        }
        let batches = burst.batches;
        let more = (batches..).take_while(|_| burst.next(1, true, true) == NextRead::Again).count();
        assert_eq!(batches + more + 1, MAX_BATCHES);
    }
}
