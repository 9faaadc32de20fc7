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
/// Empty reads after a batch of a stream before the thread sleeps. The next packets of the stream
/// arrive sooner than a sleep and a wake-up take. Before each of these reads the thread yields the
/// processor. After small messages the thread sleeps at once, because the kernel's scheduler
/// prefers a thread that slept to a thread that spins.
const MAX_EMPTY_READS: usize = 32;

/// The other threads of the engine that may read the sockets.
///
/// A thread *polls* if it reads the sockets without sleeping: in `ibv_poll_cq` on an empty
/// completion queue, or in `Engine::progress`. A *leader* is a thread that waits for completions in
/// `Engine::wait`, and sleeps on the sockets in place of the background thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub now: Time,
    /// Whether a thread leads.
    pub has_leader: bool,
    /// The time of the last poll. A leader that leaves counts as a poll, because it is likely to
    /// wait again.
    pub polled_at: Time,
    /// The time until which this thread sleeps on the sockets although a thread polls, because that
    /// thread left packets in them.
    pub watched_until: Time,
    /// Whether another thread was receiving when this thread last tried to. The sockets are then
    /// readable until that thread has read them, and a sleep on them would end at once.
    pub is_taken: bool,
}

/// How the background thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A leader sleeps on the sockets.
    Led,
    /// A thread polled less than [`POLLED_NS`] ago or was receiving just now, and reads the
    /// sockets.
    Polled,
    /// No other thread reads the sockets, or a polling thread left packets in them lately
    /// (`watched_until`).
    Idle,
}

/// The deadlines, by subject. [`Wait::deadline`] says which of them another thread handles.
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
        let Situation { now, has_leader, polled_at, watched_until, is_taken } = *situation;
        let is_polled = now.since_ns(polled_at) < POLLED_NS && now >= watched_until;
        if has_leader {
            Self::Led
        } else if is_polled || is_taken {
            Self::Polled
        } else {
            Self::Idle
        }
    }

    /// Returns the descriptors to sleep on. [`Entry`] is ordered `Watchdog`, `Waker`, `Changes`,
    /// `Shared`, `Socket`. Only `Polled` includes the watchdog, and only `Idle` the sockets.
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
            // The polling thread handles the deadlines of the queue pairs. The watchdog ends the
            // sleep at the other ones (`Shared::watchdog_deadline`). If polling stops, the watchdog
            // expires at most 1 ms after the last poll, or after the sleep began if that was later.
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
    /// Records a read of `received` datagrams and returns the next step.
    ///
    /// `is_streaming`: the last batch was part of a stream of data. `is_taken`: another thread
    /// polled since the series began, or leads, and needs the receiver that this thread has locked.
    /// Only an empty read ends the series for that reason; packets that wait are read first.
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
    fn a_leader_counts_before_packets_left_unread_and_these_before_a_poll() {
        let alone = Situation {
            now: ms(1000),
            has_leader: false,
            polled_at: Time::ZERO,
            watched_until: Time::ZERO,
            is_taken: false,
        };
        let polled = Situation { polled_at: Time::from_ns(999_000_001), ..alone };
        assert_eq!(Wait::choose(&alone), Wait::Idle);
        assert_eq!(Wait::choose(&polled), Wait::Polled);
        assert_eq!(Wait::choose(&Situation { polled_at: ms(999), ..alone }), Wait::Idle);
        assert_eq!(Wait::choose(&Situation { watched_until: ms(1001), ..polled }), Wait::Idle);
        assert_eq!(Wait::choose(&Situation { watched_until: ms(1000), ..polled }), Wait::Polled);
        assert_eq!(Wait::choose(&Situation { is_taken: true, ..alone }), Wait::Polled);
        for situation in [alone, polled, Situation { watched_until: ms(1001), ..polled }] {
            assert_eq!(Wait::choose(&Situation { has_leader: true, ..situation }), Wait::Led);
        }
    }

    #[test]
    fn each_sleep_ends_at_the_deadlines_that_nothing_else_handles() {
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
    fn the_sockets_are_read_if_idle_or_if_polling_stopped() {
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
