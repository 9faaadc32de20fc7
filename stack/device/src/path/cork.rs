//! Requests that wait a moment, so that those which a program posts one by one leave in runs.
//!
//! One system call a message is what such a program would pay. So while packets are on their way
//! that will be acknowledged, what is posted may wait for those after it: until a run is full,
//! until the program polls, sleeps or asks for an event, until the acknowledgement comes, or at
//! most [`WAIT_NS`]. The first of a *round*, the time between two polls, always leave at once: who
//! posts a header and a payload and then looks at memory for the answer waits for nothing.

use urxe_types::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The longest that a request waits.
pub(crate) const WAIT_NS: u64 = 1_000_000;
/// Requests of a round that leave at once.
const AT_ONCE: u32 = 2;
/// A run has no more packets, whatever the port can do.
const FULL_PACKETS: u64 = 60;
/// A run has no more bytes.
const FULL_BYTES: u64 = 60 << 10;

/// What waits on one path. Threads that post at the same time may miscount: then a run leaves
/// sooner or later by a request or two.
#[derive(Debug, Default)]
pub(crate) struct Cork {
    round: AtomicU64,
    posts: AtomicU32,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// What becomes of requests that were just posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// They leave now, with all that waited.
    No,
    /// They wait, as the first that do.
    First,
    /// They wait with others.
    More,
}

impl Cork {
    /// Counts `posts` requests of `packets` packets and `bytes` bytes.
    pub fn hold(&self, round: u64, posts: u32, packets: u64, bytes: u64) -> Held {
        if self.round.load(Ordering::Relaxed) != round {
            self.round.store(round, Ordering::Relaxed);
            self.posts.store(0, Ordering::Relaxed);
            self.uncork();
        }
        let before = self.posts.load(Ordering::Relaxed);
        self.posts.store(before.saturating_add(posts), Ordering::Relaxed);
        let waiting = self.packets.load(Ordering::Relaxed);
        let packets = waiting + packets;
        let bytes = self.bytes.load(Ordering::Relaxed) + bytes;
        if before < AT_ONCE || packets >= FULL_PACKETS || bytes >= FULL_BYTES {
            self.uncork();
            return Held::No;
        }
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        if waiting == 0 { Held::First } else { Held::More }
    }

    /// Nothing waits any more.
    pub fn uncork(&self) {
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_round_leave_at_once_and_the_others_in_runs() {
        let cork = Cork::default();
        for round in 1..4 {
            let held: Vec<Held> = (0..130).map(|_| cork.hold(round, 1, 1, 64)).collect();
            assert_eq!(held[..4], [Held::No, Held::No, Held::First, Held::More]);
            let left: Vec<usize> = (0..130).filter(|at| held[*at] == Held::No).collect();
            assert_eq!(left, [0, 1, 61, 121], "sixty at a time");
            assert_eq!(held[62], Held::First);
        }
    }

    #[test]
    fn large_requests_fill_a_run_sooner() {
        let cork = Cork::default();
        let held: Vec<Held> = (0..8).map(|_| cork.hold(1, 1, 5, 20 << 10)).collect();
        use Held::{First, More, No};
        assert_eq!(held, [No, No, First, More, No, First, More, No]);
    }

    #[test]
    fn a_list_counts_as_all_its_requests() {
        let cork = Cork::default();
        let held: Vec<Held> = (0..5).map(|_| cork.hold(7, 32, 32, 2048)).collect();
        use Held::{First, No};
        assert_eq!(held, [No, First, No, First, No]);
    }
}
