//! The rate at which services without acknowledgements send to one peer.
//!
//! No packet returns that could show how much the peer can receive. A default receive buffer (208
//! KiB) holds three 60 KiB runs. The kernel's `rdma_rxe` bounds only the packets that its own
//! network device has not sent (64 a queue pair, `RXE_INFLIGHT_SKBS_PER_QP_HIGH`), which its
//! interrupt-driven receiver can take. A receiving process with a socket cannot: without a bound,
//! an 8 MiB message over loopback would always lose packets. So a path sends bursts of at most two
//! runs, and 10 Gbit/s on average.
//!
//! If the receiver is another process on the same address, the port can look at its socket
//! ([`is_receiver_congested`](urxe_types::port::Transmit::is_receiver_congested)). The sender asks
//! the port after every half burst. While the socket is half full, the sender pauses. So two
//! processes that send and receive in turn lose nothing. After [`STALL_TIMEOUT_NS`] the sender goes
//! on: packets to a receiver that reads nothing are lost, as on any network.
//!
//! READ responses have a pacer of their own, because no acknowledgement returns credit for them
//! either: an IPv4 packet of 60 bytes requests up to 2 GiB.
//!
//! The algorithm is the virtual scheduling form of a leaky bucket (ITU-T I.371, GCRA). Its state is
//! one number: the time at which all bytes sent so far would have left at the steady rate.

use urxe_types::port::PACED_BURST as BURST;
use urxe_types::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use urxe_types::time::Time;

/// The rate of unreliable services: 10 Gbit/s.
const UNRELIABLE: Rate = Rate { ps_per_byte: 800, burst: BURST };
/// The rate of READ responses: 100 Gbit/s. The burst is five times the READ responses that a
/// requester of this stack has outstanding on a path (400 KiB).
const RESPONSES: Rate = Rate { ps_per_byte: 80, burst: 2 << 20 };

/// The pause before the sender checks a congested receiver again, in nanoseconds.
const RECHECK_NS: u64 = 100_000;
/// The longest time that the sender waits for a receiver that reads nothing, in nanoseconds.
const STALL_TIMEOUT_NS: u64 = 1_000_000_000;

/// The pacer of one path. Only the thread with the path's sender lock changes it.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    schedule: VirtualSchedule,
    /// The bytes sent since the last check of the receiver.
    bytes_since_check: AtomicU64,
    /// The last check found the receiver congested.
    is_congested: AtomicBool,
    /// The time since which the receiver is congested, in nanoseconds.
    congested_since_ns: AtomicU64,
}

impl Pacer {
    /// Forgets the bytes sent to a former peer.
    pub fn reset(&self) {
        self.schedule.reset();
        self.bytes_since_check.store(0, Ordering::Relaxed);
        self.is_congested.store(false, Ordering::Relaxed);
    }

    /// Asks `is_congested` about the receiver if a check is due, and pauses if the receiver is
    /// congested.
    pub fn check_receiver(&self, now: Time, is_congested: impl FnOnce() -> bool) {
        let was_congested = self.is_congested.load(Ordering::Relaxed);
        if !was_congested && self.bytes_since_check.load(Ordering::Relaxed) < BURST / 2 {
            return;
        }
        self.bytes_since_check.store(0, Ordering::Relaxed);
        let (is_congested, now_ns) = (is_congested(), now.as_ns());
        self.is_congested.store(is_congested, Ordering::Relaxed);
        if !is_congested {
            return;
        }
        if !was_congested {
            self.congested_since_ns.store(now_ns, Ordering::Relaxed);
        }
        if now_ns.saturating_sub(self.congested_since_ns.load(Ordering::Relaxed)) < STALL_TIMEOUT_NS
        {
            self.schedule.pause_until(now_ns + UNRELIABLE.ns(BURST) + RECHECK_NS);
        }
    }

    /// Records `bytes` as sent.
    ///
    /// # Errors
    /// The time at which to try again, with nothing recorded. At that time half a burst has room,
    /// so that a paused sender sends runs and not single packets.
    pub fn admit(&self, now: Time, bytes: u64) -> Result<(), Time> {
        self.schedule.admit(now, bytes, &UNRELIABLE)?;
        self.bytes_since_check.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// The pacer of the READ responses of one path. Only the thread with the path's sender lock changes
/// it.
#[derive(Debug, Default)]
pub(crate) struct ResponsePacer(VirtualSchedule);

impl ResponsePacer {
    /// Forgets the bytes sent to a former peer.
    pub fn reset(&self) {
        self.0.reset();
    }

    /// Records `bytes` as sent.
    ///
    /// # Errors
    /// The time at which to try again, as for [`Pacer::admit`].
    #[inline]
    pub fn admit(&self, now: Time, bytes: u64) -> Result<(), Time> {
        self.0.admit(now, bytes, &RESPONSES)
    }
}

/// A steady rate with bursts.
struct Rate {
    /// The time of a byte in picoseconds.
    ps_per_byte: u64,
    /// The bytes that may leave at once.
    burst: u64,
}

impl Rate {
    const fn ns(&self, bytes: u64) -> u64 {
        bytes * self.ps_per_byte / 1000
    }
}

/// The time at which all bytes sent so far would have left at a steady rate, in nanoseconds.
#[derive(Debug, Default)]
struct VirtualSchedule(AtomicU64);

impl VirtualSchedule {
    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn pause_until(&self, at_ns: u64) {
        self.0.fetch_max(at_ns, Ordering::Relaxed);
    }

    #[inline]
    fn admit(&self, now: Time, bytes: u64, rate: &Rate) -> Result<(), Time> {
        let now_ns = now.as_ns();
        let ahead = self.0.load(Ordering::Relaxed).saturating_sub(now_ns);
        if ahead > rate.ns(rate.burst) {
            return Err(now.plus_ns(ahead - rate.ns(rate.burst / 2)));
        }
        self.0.store(now_ns + ahead + rate.ns(bytes), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 4096;

    /// Sends all that the pacer admits at `now`. Returns the number of packets, and the time to try
    /// again.
    fn burst(pacer: &Pacer, now: Time) -> (u64, Time) {
        for sent in 0.. {
            if let Err(at) = pacer.admit(now, PACKET) {
                return (sent, at);
            }
        }
        unreachable!("a burst ends");
    }

    #[test]
    fn a_burst_is_bounded_and_half_of_it_follows_at_the_steady_rate() {
        let pacer = Pacer::default();
        let start = Time::from_ns(1_000_000);
        let (sent, mut at) = burst(&pacer, start);
        assert!((BURST / PACKET..=BURST / PACKET + 1).contains(&sent), "{sent}");
        let mut total = sent;
        for _ in 0..100 {
            let (more, next) = burst(&pacer, at);
            assert!(more >= BURST / PACKET / 2, "{more}");
            total += more;
            at = next;
        }
        let elapsed = at.since_ns(start);
        let at_the_rate = UNRELIABLE.ns(total * PACKET);
        assert!(
            elapsed.abs_diff(at_the_rate) < 2 * UNRELIABLE.ns(BURST),
            "{elapsed} ns for {at_the_rate} ns of packets"
        );
    }

    /// Sends all that the pacer admits until `end`, with the checks of a device. Returns the number
    /// of bytes.
    fn send_until(pacer: &Pacer, start: Time, end: Time, is_congested: bool) -> u64 {
        let (mut now, mut sent) = (start, 0);
        while now < end {
            pacer.check_receiver(now, || is_congested);
            let (packets, at) = burst(pacer, now);
            (sent, now) = (sent + packets * PACKET, at);
        }
        sent
    }

    #[test]
    fn a_congested_receiver_gets_nothing_until_it_has_room_or_reads_nothing_for_a_second() {
        let pacer = Pacer::default();
        let at_ms = |ms: u64| Time::from_ns(ms * 1_000_000);
        assert!(send_until(&pacer, at_ms(1), at_ms(2), false) > BURST);
        // These bytes left before the first check.
        assert!(send_until(&pacer, at_ms(2), at_ms(3), true) <= 2 * BURST);
        assert_eq!(send_until(&pacer, at_ms(3), at_ms(900), true), 0);
        assert!(send_until(&pacer, at_ms(900), at_ms(901), false) > BURST);
        send_until(&pacer, at_ms(901), at_ms(902), true);
        assert_eq!(send_until(&pacer, at_ms(902), at_ms(1_800), true), 0);
        assert!(send_until(&pacer, at_ms(2_000), at_ms(2_001), true) > BURST);
    }

    #[test]
    fn a_pause_earns_one_burst_and_no_more() {
        let pacer = Pacer::default();
        burst(&pacer, Time::from_ns(1));
        let (sent, _) = burst(&pacer, Time::from_ns(1_000_000_000));
        assert!(sent <= BURST / PACKET + 1, "{sent}");
    }
}
