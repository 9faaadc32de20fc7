//! The pace of a path: how fast services without acknowledgements may send to one peer.
//!
//! Nothing comes back that could say what the peer has room for, and a default receive buffer (208 KiB) holds three
//! 60 KiB runs. The kernel's `rdma_rxe` bounds only what its own network device has not yet sent (64 packets a queue
//! pair, `RXE_INFLIGHT_SKBS_PER_QP_HIGH`), which its interrupt-driven receiver stands; a receiver that is a process
//! with a socket does not: without a bound an 8 MiB message over loopback would always lose packets. So a path sends
//! bursts of at most two runs, at the rate of a 10 Gbit/s link over time.
//!
//! This is the virtual scheduling form of a leaky bucket (ITU-T I.371, GCRA): one number, the time at which everything sent so far
//! would have left at the steady rate.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::time::Time;

/// Bytes that may leave at once after a pause.
pub(crate) const BURST: u64 = 120 << 10;
/// Tenths of a nanosecond that a byte takes at 10 Gbit/s.
const TENTHS_OF_NS_PER_BYTE: u64 = 8;

/// One path's pace. Only who sends on the path moves it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When everything sent so far would have left, in nanoseconds.
    sent_until_ns: AtomicU64,
}

impl Pace {
    /// Forgets what was sent to a former peer.
    pub fn reset(&self) {
        self.sent_until_ns.store(0, Ordering::Relaxed);
    }

    /// Takes `bytes` into the account. `Err`, with nothing taken: when to come back. That is once half a burst has room, so that
    /// a stopped sender sends runs and not single packets.
    pub fn admit(&self, now: Time, bytes: u64) -> Result<(), Time> {
        let now_ns = now.as_ns();
        let sent_until = self.sent_until_ns.load(Ordering::Relaxed);
        let ahead = sent_until.saturating_sub(now_ns);
        if ahead > ns(BURST) {
            return Err(now.plus_ns(ahead - ns(BURST / 2)));
        }
        self.sent_until_ns.store(now_ns + ahead + ns(bytes), Ordering::Relaxed);
        Ok(())
    }
}

const fn ns(bytes: u64) -> u64 {
    bytes * TENTHS_OF_NS_PER_BYTE / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 4096;

    /// Sends as much as it may at `now`; how many packets that was, and when to come back.
    fn burst(pace: &Pace, now: Time) -> (u64, Time) {
        for sent in 0.. {
            if let Err(at) = pace.admit(now, PACKET) {
                return (sent, at);
            }
        }
        unreachable!("a burst ends");
    }

    #[test]
    fn a_burst_is_bounded_and_half_of_it_follows_at_the_steady_rate() {
        let pace = Pace::default();
        let start = Time::from_ns(1_000_000);
        let (sent, mut at) = burst(&pace, start);
        assert!((BURST / PACKET..=BURST / PACKET + 1).contains(&sent), "{sent}");
        let mut total = sent;
        for _ in 0..100 {
            let (more, next) = burst(&pace, at);
            assert!(more >= BURST / PACKET / 2, "{more}");
            total += more;
            at = next;
        }
        let elapsed = at.since_ns(start);
        let at_the_rate = ns(total * PACKET);
        assert!(
            elapsed.abs_diff(at_the_rate) < 2 * ns(BURST),
            "{elapsed} ns for {at_the_rate} ns of packets"
        );
    }

    #[test]
    fn a_pause_earns_one_burst_and_no_more() {
        let pace = Pace::default();
        burst(&pace, Time::from_ns(1));
        let (sent, _) = burst(&pace, Time::from_ns(1_000_000_000));
        assert!(sent <= BURST / PACKET + 1, "{sent}");
    }
}
