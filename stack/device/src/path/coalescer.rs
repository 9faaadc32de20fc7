//! Requests that wait a moment, so that those which a program posts one by one leave in runs.
//!
//! One system call a message is what such a program would pay. So while packets are on their way
//! that will be acknowledged, what is posted may wait for those after it: until a run is full,
//! until the program polls, sleeps or asks for an event, until the acknowledgement comes, or at
//! most [`WAIT_NS`]. The first of a *poll epoch*, the time between two polls, always leave at once:
//! who posts a header and a payload and then looks at memory for the answer waits for nothing.

use urxe_types::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The longest that a request waits.
pub(crate) const WAIT_NS: u64 = 1_000_000;
/// Requests of a poll epoch that leave at once.
const AT_ONCE: u32 = 2;
/// A run has no more packets, whatever the port can do.
const FULL_PACKETS: u64 = 60;
/// A run has no more bytes.
const FULL_BYTES: u64 = 60 << 10;

/// What waits on one path. Threads that post at the same time may miscount: then a run leaves
/// sooner or later by a request or two.
#[derive(Debug, Default)]
pub(crate) struct SendCoalescer {
    poll_epoch: AtomicU64,
    posts: AtomicU32,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// What becomes of requests that were just posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// They leave now, with all that waited.
    SendNow,
    /// They wait, as the first that do.
    Started,
    /// They wait with others.
    Joined,
}

impl SendCoalescer {
    /// Counts `posts` requests of `packets` packets and `bytes` bytes.
    pub fn defer(&self, poll_epoch: u64, posts: u32, packets: u64, bytes: u64) -> Deferral {
        if self.poll_epoch.load(Ordering::Relaxed) != poll_epoch {
            self.poll_epoch.store(poll_epoch, Ordering::Relaxed);
            self.posts.store(0, Ordering::Relaxed);
            self.release();
        }
        let before = self.posts.load(Ordering::Relaxed);
        self.posts.store(before.saturating_add(posts), Ordering::Relaxed);
        let waiting = self.packets.load(Ordering::Relaxed);
        let packets = waiting + packets;
        let bytes = self.bytes.load(Ordering::Relaxed) + bytes;
        if before < AT_ONCE || packets >= FULL_PACKETS || bytes >= FULL_BYTES {
            self.release();
            return Deferral::SendNow;
        }
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        if waiting == 0 { Deferral::Started } else { Deferral::Joined }
    }

    /// Nothing waits any more.
    pub fn release(&self) {
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_round_leave_at_once_and_the_others_in_runs() {
        let coalescer = SendCoalescer::default();
        for poll_epoch in 1..4 {
            let deferral: Vec<Deferral> =
                (0..130).map(|_| coalescer.defer(poll_epoch, 1, 1, 64)).collect();
            assert_eq!(
                deferral[..4],
                [Deferral::SendNow, Deferral::SendNow, Deferral::Started, Deferral::Joined]
            );
            let left: Vec<usize> =
                (0..130).filter(|at| deferral[*at] == Deferral::SendNow).collect();
            assert_eq!(left, [0, 1, 61, 121], "sixty at a time");
            assert_eq!(deferral[62], Deferral::Started);
        }
    }

    #[test]
    fn large_requests_fill_a_run_sooner() {
        let coalescer = SendCoalescer::default();
        let deferral: Vec<Deferral> = (0..8).map(|_| coalescer.defer(1, 1, 5, 20 << 10)).collect();
        use Deferral::{Joined, SendNow, Started};
        assert_eq!(
            deferral,
            [SendNow, SendNow, Started, Joined, SendNow, Started, Joined, SendNow]
        );
    }

    #[test]
    fn a_list_counts_as_all_its_requests() {
        let coalescer = SendCoalescer::default();
        let deferral: Vec<Deferral> = (0..5).map(|_| coalescer.defer(7, 32, 32, 2048)).collect();
        use Deferral::{SendNow, Started};
        assert_eq!(deferral, [SendNow, Started, SendNow, Started, SendNow]);
    }
}
