//! The congestion window of a path: how many bytes of requests may be on their way to one peer.
//!
//! A receiver's socket buffer is the scarce place: a default one (208 KiB) holds three 60 KiB runs.
//! So the window starts at two runs, grows by what is acknowledged while it is the limit, shrinks
//! on bursts of loss, and not below one run for that. A larger buffer holds more, and a longer
//! queue keeps sender and receiver from waiting for each other: so where three runs in flight were
//! never lost for a while, one more is tried, up to six; a loss takes that back, and the next try
//! comes twice as late. Where routers tell of congestion before they drop ([`ecn`](super::ecn)),
//! the window may become smaller still, and grows a packet a round trip.
//!
//! READ responses are not acknowledged, so what is asked for at once is bounded by the own receive
//! buffer, and becomes smaller when they come marked.
//!
//! All fields are atomics: acknowledgements release bytes under the lock of their queue pair, while
//! another thread fills a run under the lock of the path. The counts may be off for a moment; they
//! are a brake, not a protocol.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::congestion::CongestionEstimator;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::time::Time;

/// Header bytes that each packet is charged beside its payload.
pub(crate) const PACKET_OVERHEAD: u64 = 64;

/// What a run of the longest packets is charged: 60 KiB, and what each of the packets is charged
/// beside.
pub(crate) const RUN: u64 = 15 * (4096 + PACKET_OVERHEAD);
/// The window never falls below one run.
const MIN_WINDOW: u64 = RUN;
/// What a path starts with.
const INITIAL_WINDOW: u64 = 2 * RUN;
/// What a default buffer holds: how far it grows at first.
const MAX_WINDOW: u64 = 3 * RUN;
/// How far it grows where the peer turns out to hold more. Still more is no faster.
const MAX_RAISED_WINDOW: u64 = 6 * RUN;
/// The maximum rises by a run after so many bytes were acknowledged under it without loss.
const RAISE_AFTER_BYTES: u64 = 16 << 20;
/// After a loss under a raised maximum it does not rise for so long, and twice as long each time
/// that happens again.
const RAISE_BACKOFF_MIN_NS: u64 = 1_000_000_000;
const RAISE_BACKOFF_MAX_NS: u64 = 64_000_000_000;

/// What is left where routers tell of congestion: some packets, so that one that is lost is noticed
/// by those behind it.
const MIN_MARKED_WINDOW: u64 = 16 << 10;
/// By so much a window of what was marked grows when all of it came through.
const MARKED_INCREASE: u64 = 4 << 10;

/// Retransmission before this is more often a peer that was not scheduled than a packet that was
/// lost. A device may be told a longer time.
pub const EARLY_TIMEOUT_MIN: Duration = Duration::from_millis(40);
/// The last packet is sent once more after this at the soonest: a peer that was not scheduled for a
/// time slice still answers before.
const PROBE_MIN_NS: u64 = 5_000_000;
const NO_PROBE: u64 = u64::MAX;
/// Used while no round trip has been measured.
const EARLY_UNMEASURED_NS: u64 = 100_000_000;

/// Queue pairs that send at the same time measure so often together.
const MEASURES_A_ROUND_TRIP: u64 = 8;
/// Taken for the round trip while none has been measured.
const ROUND_TRIP_UNMEASURED_NS: u64 = 1_000_000;
/// A packet may be overtaken for so long, whatever the round trip. The least is also what is taken
/// while none has been measured: an interrupt of another processor may be that late, and who asks
/// in vain waits no longer than that.
const REORDERING_NS: RangeInclusive<u64> = 100_000..=1_000_000;

/// The credits of a path: what bounds the bytes under way. A queue pair that finds too little waits
/// in the path's admission queue of that credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credit {
    /// For packets with data: the congestion window.
    Send,
    /// For requests of READs and atomics: their responses fill the receive buffer of this side.
    ReadResponse,
}

impl Credit {
    pub const COUNT: usize = 2;
    pub const ALL: [Self; Self::COUNT] = [Self::Send, Self::ReadResponse];
}

/// Window, round trip and read budget of one path.
#[derive(Debug, Default)]
pub(crate) struct Window {
    limit: AtomicU64,
    /// What `limit` grows to.
    max: AtomicU64,
    /// Bytes acknowledged since the maximum rose or something was lost.
    acked_since_loss: AtomicU64,
    /// When it may rise again, and how long it rests after the next loss.
    raise_at_ns: AtomicU64,
    raise_backoff_ns: AtomicU64,
    in_flight: AtomicU64,
    reads_in_flight: AtomicU64,
    read_budget: u64,
    /// What routers leave of the read budget.
    read_limit: AtomicU64,
    /// By so much a window grows that came through.
    increase: AtomicU64,
    congestion: CongestionEstimator,
    read_congestion: CongestionEstimator,
    /// Smoothed round trip, 0 while unknown.
    srtt_ns: AtomicU64,
    rttvar_ns: AtomicU64,
    /// The shortest round trip, forgotten slowly.
    shortest_ns: AtomicU64,
    /// The longest round trip, forgotten slowly: a peer that was not scheduled once will not be
    /// again.
    longest_ns: AtomicU64,
    last_shrink_ns: AtomicU64,
    /// One past when a queue pair last began to measure the round trip, 0 before.
    measured_ns: AtomicU64,
    /// What follows from the round trips, worked out when one is measured: each packet that is sent
    /// asks for it.
    early_timeout_ns: AtomicU64,
    /// [`NO_PROBE`] if there is to be none.
    probe_timeout_ns: AtomicU64,
    /// No early timeout is shorter.
    early_min_ns: u64,
}

impl Window {
    pub fn new(read_budget: u64, early_min: Duration) -> Self {
        let early_min_ns = u64::try_from(early_min.as_nanos()).unwrap_or(u64::MAX);
        let window = Self { read_budget, early_min_ns, ..Self::default() };
        window.reset();
        window
    }

    /// Forgets what was learned about a former peer.
    pub fn reset(&self) {
        self.limit.store(INITIAL_WINDOW, Ordering::Relaxed);
        self.increase.store(MIN_WINDOW / 2, Ordering::Relaxed);
        self.read_limit.store(self.read_budget, Ordering::Relaxed);
        self.congestion.reset();
        self.read_congestion.reset();
        self.max.store(MAX_WINDOW, Ordering::Relaxed);
        self.raise_backoff_ns.store(RAISE_BACKOFF_MIN_NS, Ordering::Relaxed);
        for learned in [
            &self.acked_since_loss,
            &self.raise_at_ns,
            &self.srtt_ns,
            &self.rttvar_ns,
            &self.shortest_ns,
            &self.longest_ns,
            &self.last_shrink_ns,
            &self.measured_ns,
        ] {
            learned.store(0, Ordering::Relaxed);
        }
        self.set_timeouts();
    }

    /// Whether `bytes` more may be sent. A packet always may when nothing is in flight.
    pub fn admits(&self, bytes: u64) -> bool {
        let in_flight = self.in_flight();
        in_flight == 0 || self.has_room(in_flight + bytes)
    }

    /// Whether `bytes` may be in flight together, beside nothing else.
    pub fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.limit.load(Ordering::Relaxed)
    }

    pub fn consume(&self, bytes: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn return_credit(&self, bytes: u64) {
        let before = self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} bytes in flight");
    }

    /// Whether responses of `bytes` more may be asked for.
    pub fn admits_read(&self, bytes: u64) -> bool {
        let asked = self.reads_in_flight.load(Ordering::Relaxed);
        asked == 0 || asked + bytes <= self.read_limit.load(Ordering::Relaxed)
    }

    pub fn consume_read(&self, bytes: u64) {
        self.reads_in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn return_read_credit(&self, bytes: u64) {
        let before = self.reads_in_flight.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} bytes asked for");
        let limit = self.read_limit.load(Ordering::Relaxed);
        if limit < self.read_budget {
            let increase = bytes * MARKED_INCREASE / limit;
            self.read_limit.store((limit + increase).min(self.read_budget), Ordering::Relaxed);
        }
    }

    /// How many bytes of responses may be outstanding at once.
    pub fn read_budget(&self) -> u64 {
        self.read_limit.load(Ordering::Relaxed)
    }

    /// Bytes in flight now: 0 on an idle path.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes of responses asked for now: 0 on an idle path.
    pub fn reads_in_flight(&self) -> u64 {
        self.reads_in_flight.load(Ordering::Relaxed)
    }

    /// `bytes` were acknowledged without loss, and released: grow, at most to the maximum, which
    /// may rise.
    pub fn on_acknowledged(&self, bytes: u64, now: Time) {
        let limit = self.limit.load(Ordering::Relaxed);
        let acked_since_loss = self.acked_since_loss.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let was_in_flight = self.in_flight.load(Ordering::Relaxed) + bytes;
        if limit == MAX_RAISED_WINDOW || was_in_flight * 2 < limit {
            return;
        }
        let mut max = self.max.load(Ordering::Relaxed);
        if limit >= max {
            if acked_since_loss < RAISE_AFTER_BYTES
                || now.as_ns() < self.raise_at_ns.load(Ordering::Relaxed)
            {
                return;
            }
            max = (max + RUN).min(MAX_RAISED_WINDOW);
            self.max.store(max, Ordering::Relaxed);
            self.acked_since_loss.store(0, Ordering::Relaxed);
        }
        // One acknowledged window adds half a run.
        let increase = bytes * self.increase.load(Ordering::Relaxed) / limit;
        let limit = (limit + increase).min(max);
        self.limit.store(limit, Ordering::Relaxed);
        if limit == max {
            self.increase.store(MIN_WINDOW / 2, Ordering::Relaxed);
        }
    }

    /// What may be sent at once without asking for an acknowledgement: a third of the window, but
    /// not less than a run, if it has room for one, and not more than two. Fewer acknowledgements
    /// cost less on both sides.
    pub fn burst(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        (limit / 3).clamp(RUN.min(limit), 2 * RUN)
    }

    /// Packets were lost: shrink, once a round trip, unless a whole window had passed since
    /// something was lost before. A queue that overflows does so again within the next window; what
    /// gets lost now and then has other reasons.
    pub fn on_loss(&self, now: Time) {
        let acked_since_loss = self.acked_since_loss.swap(0, Ordering::Relaxed);
        let is_isolated = acked_since_loss >= self.limit.load(Ordering::Relaxed);
        self.lower_max(now);
        if is_isolated {
            return;
        }
        let pause = self.srtt_ns.load(Ordering::Relaxed).max(1_000_000);
        let last = self.last_shrink_ns.load(Ordering::Relaxed);
        if now.as_ns().saturating_sub(last) >= pause {
            self.last_shrink_ns.store(now.as_ns(), Ordering::Relaxed);
            let limit = self.limit.load(Ordering::Relaxed);
            self.limit.store((limit * 3 / 4).max(MIN_WINDOW.min(limit)), Ordering::Relaxed);
        }
    }

    /// A raised maximum was too high.
    fn lower_max(&self, now: Time) {
        if self.max.swap(MAX_WINDOW, Ordering::Relaxed) > MAX_WINDOW {
            let backoff = self.raise_backoff_ns.load(Ordering::Relaxed);
            self.raise_at_ns.store(now.as_ns() + backoff, Ordering::Relaxed);
            self.raise_backoff_ns.store((2 * backoff).min(RAISE_BACKOFF_MAX_NS), Ordering::Relaxed);
            self.limit.fetch_min(MAX_WINDOW, Ordering::Relaxed);
        }
    }

    /// The peer told that requests came to it marked: shrink, once a round trip. Whether it did.
    pub fn on_cnp(&self, now: Time) -> bool {
        self.acked_since_loss.store(0, Ordering::Relaxed);
        self.lower_max(now);
        let limit = self.limit.load(Ordering::Relaxed);
        let left = self.congestion.on_congestion(limit, now, self.srtt_ns.load(Ordering::Relaxed));
        if let Some(left) = left {
            self.limit.store(left.max(MIN_MARKED_WINDOW.min(limit)), Ordering::Relaxed);
            self.increase.store(MARKED_INCREASE, Ordering::Relaxed);
        }
        left.is_some()
    }

    /// READ responses came marked: ask for less at once.
    pub fn on_marked_responses(&self, now: Time) {
        let limit = self.read_limit.load(Ordering::Relaxed);
        if let Some(left) =
            self.read_congestion.on_congestion(limit, now, self.srtt_ns.load(Ordering::Relaxed))
        {
            self.read_limit.store(left.max(MIN_MARKED_WINDOW.min(limit)), Ordering::Relaxed);
        }
    }

    /// Whether a queue pair shall measure the round trip with what it sends now. A few measures a
    /// round trip tell all there is to know, however many queue pairs send (RFC 6298, 3, wants
    /// one).
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
        let shortest = self.shortest_ns.load(Ordering::Relaxed);
        let shortest = if shortest == 0 { ns } else { ns.min(shortest + shortest / 64 + 1) };
        self.shortest_ns.store(shortest.max(1), Ordering::Relaxed);
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

    /// No packet was answered sooner lately.
    pub fn shortest_round_trip_ns(&self) -> u64 {
        match self.shortest_ns.load(Ordering::Relaxed) {
            0 => ROUND_TRIP_UNMEASURED_NS,
            shortest => shortest,
        }
    }

    /// How long a packet may be overtaken by others before it counts as lost: a quarter of the
    /// shortest round trip (RFC 8985, 6.2), within bounds.
    pub fn reordering_ns(&self) -> u64 {
        let quarter = self.shortest_ns.load(Ordering::Relaxed) / 4;
        quarter.clamp(*REORDERING_NS.start(), *REORDERING_NS.end())
    }

    /// How long to wait for an acknowledgement before sending the last packet once more, if that
    /// comes before [`early_timeout_ns`](Self::early_timeout_ns) at all: not while no round trip is
    /// known, and not where the device was told to wait longer.
    pub fn probe_timeout_ns(&self) -> Option<u64> {
        Some(self.probe_timeout_ns.load(Ordering::Relaxed)).filter(|ns| *ns != NO_PROBE)
    }

    /// How long to wait for an acknowledgement before sending again, by what was measured. This
    /// retransmission is earlier than the queue pair's timeout and uses up none of its retries.
    pub fn early_timeout_ns(&self) -> u64 {
        self.early_timeout_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
