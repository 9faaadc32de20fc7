//! The pace of a path: how fast services without acknowledgements may send to one peer.
//!
//! Nothing comes back that could say what the peer has room for, and a default receive buffer (208
//! KiB) holds three 60 KiB runs. The kernel's `rdma_rxe` bounds only what its own network device
//! has not yet sent (64 packets a queue pair, `RXE_INFLIGHT_SKBS_PER_QP_HIGH`), which its
//! interrupt-driven receiver stands; a receiver that is a process with a socket does not: without a
//! bound an 8 MiB message over loopback would always lose packets. So a path sends bursts of at
//! most two runs, at the rate of a 10 Gbit/s link over time.
//!
//! Where the receiver is another process of the same address, its socket can be looked at (the
//! port's [`is_receiver_congested`](urxe_types::port::Transmit::is_receiver_congested)): every half
//! burst the sender looks, and while the socket is half full it pauses, so that two processes that
//! both send and look after their sockets in turn lose nothing. A receiver that takes nothing for a
//! second is waited for no longer: what is sent to it is lost, as on any network.
//!
//! This is the virtual scheduling form of a leaky bucket (ITU-T I.371, GCRA): one number, the time
//! at which everything sent so far would have left at the steady rate.

use urxe_types::port::PACED_BURST as BURST;
use urxe_types::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use urxe_types::time::Time;

/// Tenths of a nanosecond that a byte takes at 10 Gbit/s.
const TENTHS_OF_NS_PER_BYTE: u64 = 8;

/// How long a sender pauses before it looks at a crowded receiver again.
const RECHECK_NS: u64 = 100_000;
/// How long a receiver that takes nothing is waited for.
const STALL_TIMEOUT_NS: u64 = 1_000_000_000;

/// One path's pacer. Only who sends on the path moves it.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When everything sent so far would have left, in nanoseconds.
    sent_until_ns: AtomicU64,
    /// Bytes sent since the last look at the receiver.
    bytes_since_check: AtomicU64,
    /// The last look found the receiver crowded.
    is_congested: AtomicBool,
    /// Since when it is, in nanoseconds.
    congested_since_ns: AtomicU64,
}

impl Pacer {
    /// Forgets what was sent to a former peer.
    pub fn reset(&self) {
        self.sent_until_ns.store(0, Ordering::Relaxed);
        self.bytes_since_check.store(0, Ordering::Relaxed);
        self.is_congested.store(false, Ordering::Relaxed);
    }

    /// Looks at the receiver if it is time to, and pauses if it is crowded.
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
            let pause = now_ns + ns(BURST) + RECHECK_NS;
            self.sent_until_ns.fetch_max(pause, Ordering::Relaxed);
        }
    }

    /// Takes `bytes` into the account. `Err`, with nothing taken: when to come back. That is once
    /// half a burst has room, so that a stopped sender sends runs and not single packets.
    pub fn admit(&self, now: Time, bytes: u64) -> Result<(), Time> {
        let now_ns = now.as_ns();
        let sent_until = self.sent_until_ns.load(Ordering::Relaxed);
        let ahead = sent_until.saturating_sub(now_ns);
        if ahead > ns(BURST) {
            return Err(now.plus_ns(ahead - ns(BURST / 2)));
        }
        self.sent_until_ns.store(now_ns + ahead + ns(bytes), Ordering::Relaxed);
        self.bytes_since_check.fetch_add(bytes, Ordering::Relaxed);
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
        let at_the_rate = ns(total * PACKET);
        assert!(
            elapsed.abs_diff(at_the_rate) < 2 * ns(BURST),
            "{elapsed} ns for {at_the_rate} ns of packets"
        );
    }

    /// Sends as much as it may until `end`, looking as a device does; how many bytes that was.
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
    fn nothing_is_sent_to_a_crowded_receiver_until_it_has_room_or_took_nothing_for_a_second() {
        let pacer = Pacer::default();
        let at_ms = |ms: u64| Time::from_ns(ms * 1_000_000);
        assert!(send_until(&pacer, at_ms(1), at_ms(2), false) > BURST);
        // What the first look comes too late for.
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
