//! Delays requests for a moment, so that requests that a program posts one by one leave in runs.
//!
//! Without a delay, such a program pays a system call for each message. So while data of the path
//! are in flight, a posted request may wait for further ones. Waiting requests leave
//!
//! - when they fill a run,
//! - when the program polls, sleeps or asks for an event,
//! - when the acknowledgement arrives, or
//! - after [`WAIT_NS`].
//!
//! A *poll epoch* is the time between two polls. The first [`AT_ONCE`] requests of a poll epoch
//! leave at once: a program that posts a header and a payload, and then looks at memory for the
//! reply, waits for nothing.

use urxe_types::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The longest delay of a request, in nanoseconds.
pub(crate) const WAIT_NS: u64 = 1_000_000;
/// The number of requests of a poll epoch that leave at once.
const AT_ONCE: u32 = 2;
/// The packets that fill a run, whatever the port can send in one call.
const FULL_PACKETS: u64 = 60;
/// The bytes that fill a run.
const FULL_BYTES: u64 = 60 << 10;

/// The counts of the requests that wait on one path. Threads that post at the same time may
/// miscount: then a run leaves a request or two earlier or later.
#[derive(Debug, Default)]
pub(crate) struct SendCoalescer {
    poll_epoch: AtomicU64,
    posts: AtomicU32,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// The decision on requests that were just posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// The requests leave now, with all that waited.
    SendNow,
    /// The requests wait, and none waited before.
    Started,
    /// The requests wait with others.
    Joined,
}

impl SendCoalescer {
    /// Counts `posts` requests of `packets` packets and `bytes` bytes, and decides whether they
    /// wait.
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

    /// Records that no request waits any more.
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
