//! The congestion window of a path: how many bytes of requests may be on their way to one peer.
//!
//! A receiver's socket buffer is the scarce place: a default one (208 KiB) holds three 60 KiB runs. So the window starts
//! at two runs, grows by what is acknowledged while it is the limit, shrinks on bursts of loss, and never falls below
//! one run. READ responses are not acknowledged, so what is asked for at once is bounded by the own receive buffer.
//!
//! All fields are atomics: acknowledgements release bytes under the lock of their queue pair, while another thread
//! fills a run under the lock of the path. The counts may be off for a moment; they are a brake, not a protocol.

use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::time::Time;

/// Header bytes that each packet is charged beside its payload.
pub(crate) const PACKET_OVERHEAD: u64 = 64;

/// The window never falls below one run.
const FLOOR: u64 = 60 << 10;
/// What a path starts with.
const START: u64 = 120 << 10;
/// Two or three runs in flight reach full speed; more only fills queues.
const CEILING: u64 = 180 << 10;

/// Retransmission before this is more often a peer that was not scheduled than a packet that was lost. A device may
/// be told a longer time.
pub(crate) const EARLY_TIMEOUT_MIN: Duration = Duration::from_millis(40);
/// The last packet is sent once more after this at the soonest: a peer that was not scheduled for a time slice still answers
/// before.
const PROBE_MIN_NS: u64 = 5_000_000;
const NO_PROBE: u64 = u64::MAX;
/// Used while no round trip has been measured.
const EARLY_UNMEASURED_NS: u64 = 100_000_000;

/// Queue pairs that send at the same time measure so often together.
const MEASURES_A_ROUND_TRIP: u64 = 8;
/// Taken for the round trip while none has been measured.
const ROUND_TRIP_UNMEASURED_NS: u64 = 1_000_000;

/// Window, round trip and read budget of one path.
#[derive(Debug)]
pub(crate) struct Window {
    limit: AtomicU64,
    in_flight: AtomicU64,
    reads_in_flight: AtomicU64,
    read_budget: AtomicU64,
    /// Smoothed round trip, 0 while unknown.
    srtt_ns: AtomicU64,
    rttvar_ns: AtomicU64,
    /// The longest round trip, forgotten slowly: a peer that was not scheduled once will not be again.
    longest_ns: AtomicU64,
    last_shrink_ns: AtomicU64,
    /// One past when a queue pair last began to measure the round trip, 0 before.
    measured_ns: AtomicU64,
    /// What follows from the round trips, worked out when one is measured: each packet that is sent asks for it.
    early_timeout_ns: AtomicU64,
    /// [`NO_PROBE`] if there is to be none.
    probe_timeout_ns: AtomicU64,
    /// No early timeout is shorter.
    early_min_ns: u64,
}

impl Window {
    pub fn new(read_budget: u64, early_min: Duration) -> Self {
        let early_min_ns = u64::try_from(early_min.as_nanos()).unwrap_or(u64::MAX);
        Self {
            limit: AtomicU64::new(START),
            in_flight: AtomicU64::new(0),
            reads_in_flight: AtomicU64::new(0),
            read_budget: AtomicU64::new(read_budget),
            srtt_ns: AtomicU64::new(0),
            rttvar_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
            last_shrink_ns: AtomicU64::new(0),
            measured_ns: AtomicU64::new(0),
            early_timeout_ns: AtomicU64::new(early_min_ns.max(EARLY_UNMEASURED_NS)),
            probe_timeout_ns: AtomicU64::new(NO_PROBE),
            early_min_ns,
        }
    }

    /// Forgets what was learned about a former peer.
    pub fn reset(&self) {
        self.limit.store(START, Ordering::Relaxed);
        self.srtt_ns.store(0, Ordering::Relaxed);
        self.rttvar_ns.store(0, Ordering::Relaxed);
        self.longest_ns.store(0, Ordering::Relaxed);
        self.last_shrink_ns.store(0, Ordering::Relaxed);
        self.measured_ns.store(0, Ordering::Relaxed);
        self.set_timeouts();
    }

    /// Whether `bytes` more may be sent. A packet always may when nothing is in flight.
    pub fn admits(&self, bytes: u64) -> bool {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        in_flight == 0 || in_flight + bytes <= self.limit.load(Ordering::Relaxed)
    }

    pub fn charge(&self, bytes: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn release(&self, bytes: u64) {
        let before = self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} bytes in flight");
    }

    /// Whether responses of `bytes` more may be asked for.
    pub fn admits_read(&self, bytes: u64) -> bool {
        let asked = self.reads_in_flight.load(Ordering::Relaxed);
        asked == 0 || asked + bytes <= self.read_budget.load(Ordering::Relaxed)
    }

    pub fn charge_read(&self, bytes: u64) {
        self.reads_in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn release_read(&self, bytes: u64) {
        let before = self.reads_in_flight.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} bytes asked for");
    }

    /// How many bytes of responses may be outstanding at once.
    pub fn read_budget(&self) -> u64 {
        self.read_budget.load(Ordering::Relaxed)
    }

    /// Bytes in flight now: 0 on an idle path.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes of responses asked for now: 0 on an idle path.
    pub fn reads_in_flight(&self) -> u64 {
        self.reads_in_flight.load(Ordering::Relaxed)
    }

    /// `bytes` were acknowledged without loss: grow, at most to the ceiling.
    pub fn on_acknowledged(&self, bytes: u64) {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit < CEILING && self.in_flight.load(Ordering::Relaxed) * 2 >= limit {
            // One acknowledged window adds half a run.
            let step = bytes * (FLOOR / 2) / limit;
            self.limit.store((limit + step).min(CEILING), Ordering::Relaxed);
        }
    }

    /// Packets were lost: shrink, once a round trip.
    pub fn on_loss(&self, now: Time) {
        let pause = self.srtt_ns.load(Ordering::Relaxed).max(1_000_000);
        let last = self.last_shrink_ns.load(Ordering::Relaxed);
        if now.as_ns().saturating_sub(last) >= pause {
            self.last_shrink_ns.store(now.as_ns(), Ordering::Relaxed);
            let limit = self.limit.load(Ordering::Relaxed);
            self.limit.store((limit * 3 / 4).max(FLOOR), Ordering::Relaxed);
        }
    }

    /// Whether a queue pair shall measure the round trip with what it sends now. A few measures a round trip tell all there is to know, however
    /// many queue pairs send (RFC 6298, 3, wants one).
    pub fn wants_measure(&self, now: Time) -> bool {
        let pause = self.srtt_ns.load(Ordering::Relaxed) / MEASURES_A_ROUND_TRIP;
        let is_due = now.as_ns() >= self.measured_ns.load(Ordering::Relaxed) + pause;
        if is_due {
            self.measured_ns.store(now.as_ns() + 1, Ordering::Relaxed);
        }
        is_due
    }

    /// A round trip was measured (never on a retransmitted packet; Karn).
    pub fn on_round_trip(&self, ns: u64) {
        let longest = self.longest_ns.load(Ordering::Relaxed);
        self.longest_ns.store(ns.max(longest - longest / 64), Ordering::Relaxed);
        let srtt = self.srtt_ns.load(Ordering::Relaxed);
        if srtt == 0 {
            self.srtt_ns.store(ns.max(1), Ordering::Relaxed);
            self.rttvar_ns.store(ns / 2, Ordering::Relaxed);
        } else {
            // RFC 6298 (2.3).
            let var = self.rttvar_ns.load(Ordering::Relaxed);
            self.rttvar_ns.store((var * 3 + srtt.abs_diff(ns)) / 4, Ordering::Relaxed);
            self.srtt_ns.store(((srtt * 7 + ns) / 8).max(1), Ordering::Relaxed);
        }
        self.set_timeouts();
    }

    fn set_timeouts(&self) {
        let (mut early, mut probe) = (self.early_min_ns.max(EARLY_UNMEASURED_NS), NO_PROBE);
        let srtt = self.srtt_ns.load(Ordering::Relaxed);
        if srtt != 0 {
            let var = self.rttvar_ns.load(Ordering::Relaxed);
            let longest = self.longest_ns.load(Ordering::Relaxed);
            early = (srtt + 4 * var).max(2 * longest).max(self.early_min_ns);
            let is_patient = u128::from(self.early_min_ns) > EARLY_TIMEOUT_MIN.as_nanos();
            let earliest = (2 * srtt + 4 * var).max(PROBE_MIN_NS);
            if !is_patient && earliest < early {
                probe = earliest;
            }
        }
        self.early_timeout_ns.store(early, Ordering::Relaxed);
        self.probe_timeout_ns.store(probe, Ordering::Relaxed);
    }

    /// How long a packet and its answer take, by what was measured.
    pub fn round_trip_ns(&self) -> u64 {
        match self.srtt_ns.load(Ordering::Relaxed) {
            0 => ROUND_TRIP_UNMEASURED_NS,
            srtt => srtt,
        }
    }

    /// How long to wait for an acknowledgement before sending the last packet once more, if that comes before
    /// [`early_timeout_ns`](Self::early_timeout_ns) at all: not while no round trip is known, and not where the device was told to wait longer.
    pub fn probe_timeout_ns(&self) -> Option<u64> {
        Some(self.probe_timeout_ns.load(Ordering::Relaxed)).filter(|ns| *ns != NO_PROBE)
    }

    /// How long to wait for an acknowledgement before sending again, by what was measured. This retransmission is
    /// earlier than the queue pair's timeout and uses up none of its retries.
    pub fn early_timeout_ns(&self) -> u64 {
        self.early_timeout_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
