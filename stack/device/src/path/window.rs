//! The congestion window of a path: the bytes of requests that may be in flight to one peer.
//!
//! The scarce resource is the receiver's socket buffer: a default one (208 KiB) holds three 60 KiB
//! runs. So the window
//!
//! - starts at two runs,
//! - grows with acknowledged bytes while it is the limit, up to three runs,
//! - shrinks on bursts of loss, but not below one run.
//!
//! A larger buffer holds more, and a longer queue keeps sender and receiver from waiting for each
//! other. So after some time without loss the maximum rises by a run, up to six. A loss takes the
//! rise back, and the next one comes twice as late. If routers report congestion before they drop
//! ([`ecn`](super::ecn)), the window may become smaller than a run, and then grows a packet a round
//! trip.
//!
//! READ responses are not acknowledged. So the bytes of responses in flight are bounded by the own
//! receive buffer, and by less when responses arrive marked.
//!
//! All fields are atomics: a receiving thread returns credit under the lock of a queue pair, while
//! another thread fills a run under the lock of the path. The counts may be inexact for a moment,
//! because the window only limits the rate.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::congestion::CongestionEstimator;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::time::Time;

/// The bytes that each packet is charged beside its payload, for headers.
pub(crate) const PACKET_OVERHEAD: u64 = 64;

/// The charge for a run of the longest packets: 60 KiB of payload, and the overhead of each packet.
pub(crate) const RUN: u64 = 15 * (4096 + PACKET_OVERHEAD);
/// The smallest window without marks, in bytes.
const MIN_WINDOW: u64 = RUN;
/// The window of a new path.
const INITIAL_WINDOW: u64 = 2 * RUN;
/// The largest window at first: a default socket buffer.
const MAX_WINDOW: u64 = 3 * RUN;
/// The largest window to a peer whose buffer turns out to be larger. A still larger window is no
/// faster.
const MAX_RAISED_WINDOW: u64 = 6 * RUN;
/// The bytes acknowledged without loss after which the maximum rises by a run.
const RAISE_AFTER_BYTES: u64 = 16 << 20;
/// The time after a loss under a raised maximum in which it does not rise again, in nanoseconds.
/// The time doubles with each such loss.
const RAISE_BACKOFF_MIN_NS: u64 = 1_000_000_000;
/// The longest such time, in nanoseconds.
const RAISE_BACKOFF_MAX_NS: u64 = 64_000_000_000;

/// The smallest window when routers mark: some packets, so that the peer notices the loss of one by
/// those behind it.
const MIN_MARKED_WINDOW: u64 = 16 << 10;
/// The growth of a marked window of which all bytes were acknowledged.
const MARKED_INCREASE: u64 = 4 << 10;

/// The shortest early timeout. A packet that is not answered sooner is more often delayed by a peer
/// that was not scheduled than lost. The configuration of a device may ask for a longer time.
pub const EARLY_TIMEOUT_MIN: Duration = Duration::from_millis(40);
/// The shortest time before the last packet is sent again as a probe, in nanoseconds. A peer that
/// was not scheduled for a time slice still answers before.
const PROBE_MIN_NS: u64 = 5_000_000;
const NO_PROBE: u64 = u64::MAX;
/// The early timeout while no round trip was measured, in nanoseconds.
const EARLY_UNMEASURED_NS: u64 = 100_000_000;

/// The measurements of the round trip in one round trip, however many queue pairs send.
const MEASURES_A_ROUND_TRIP: u64 = 8;
/// The assumed round trip while none was measured, in nanoseconds.
const ROUND_TRIP_UNMEASURED_NS: u64 = 1_000_000;
/// The bounds of the time in which a packet may be overtaken, in nanoseconds. The lower bound also
/// holds while no round trip was measured: an interrupt of another processor may be that late, and
/// an unnecessary request for a packet is delayed no longer.
const REORDERING_NS: RangeInclusive<u64> = 100_000..=1_000_000;

/// The credits of a path, which bound the bytes in flight. A queue pair that finds too little waits
/// in the path's admission queue of that credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credit {
    /// Credit for packets with data: the congestion window.
    Send,
    /// Credit for requests of READs and atomics, because their responses fill the receive buffer of
    /// this side.
    ReadResponse,
}

impl Credit {
    pub const COUNT: usize = 2;
    pub const ALL: [Self; Self::COUNT] = [Self::Send, Self::ReadResponse];
}

/// Window, round trip and read budget of one path.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The window in bytes.
    limit: AtomicU64,
    /// The maximum of `limit`.
    max: AtomicU64,
    /// The bytes acknowledged since the maximum rose or a packet was lost.
    acked_since_loss: AtomicU64,
    /// The time from which the maximum may rise again.
    raise_at_ns: AtomicU64,
    /// The time without a rise after the next loss.
    raise_backoff_ns: AtomicU64,
    /// The bytes of requests in flight.
    in_flight: AtomicU64,
    /// The bytes of responses that were requested and have not arrived.
    reads_in_flight: AtomicU64,
    /// The most bytes of responses in flight: the receive buffer.
    read_budget: u64,
    /// The part of `read_budget` that marks of routers leave.
    read_limit: AtomicU64,
    /// The growth for a window of acknowledged bytes.
    increase: AtomicU64,
    /// The estimate for requests.
    congestion: CongestionEstimator,
    /// The estimate for responses.
    read_congestion: CongestionEstimator,
    /// The smoothed round trip. 0 before the first measurement.
    srtt_ns: AtomicU64,
    /// The variation of the round trip (RFC 6298).
    rttvar_ns: AtomicU64,
    /// The shortest round trip, forgotten slowly.
    shortest_ns: AtomicU64,
    /// The longest round trip, forgotten slowly: a peer that was not scheduled once will be late
    /// again.
    longest_ns: AtomicU64,
    /// The time of the last reduction after loss.
    last_shrink_ns: AtomicU64,
    /// One past the time at which a queue pair last began a measurement. 0 before the first.
    measured_ns: AtomicU64,
    /// The early timeout. Computed with each measurement, because each packet that is sent reads
    /// it.
    early_timeout_ns: AtomicU64,
    /// The probe timeout, or [`NO_PROBE`].
    probe_timeout_ns: AtomicU64,
    /// The shortest early timeout of the device.
    early_min_ns: u64,
}

impl Window {
    pub fn new(read_budget: u64, early_min: Duration) -> Self {
        let early_min_ns = u64::try_from(early_min.as_nanos()).unwrap_or(u64::MAX);
        let window = Self { read_budget, early_min_ns, ..Self::default() };
        window.reset();
        window
    }

    /// Forgets the measurements of a former peer. Bytes in flight stay counted.
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

    /// Returns whether `bytes` more may be sent. A path with nothing in flight always admits them.
    pub fn admits(&self, bytes: u64) -> bool {
        let in_flight = self.in_flight();
        in_flight == 0 || self.has_room(in_flight + bytes)
    }

    /// Returns whether `bytes` fit the window if nothing else is in flight.
    pub fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.limit.load(Ordering::Relaxed)
    }

    /// Charges `bytes` that are about to be sent.
    pub fn consume(&self, bytes: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the credit of `bytes`.
    pub fn return_credit(&self, bytes: u64) {
        let before = self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} bytes in flight");
    }

    /// Returns whether responses of `bytes` more may be requested. A path without outstanding
    /// responses always admits them.
    pub fn admits_read(&self, bytes: u64) -> bool {
        let asked = self.reads_in_flight.load(Ordering::Relaxed);
        asked == 0 || asked + bytes <= self.read_limit.load(Ordering::Relaxed)
    }

    /// Charges responses of `bytes` that are about to be requested.
    pub fn consume_read(&self, bytes: u64) {
        self.reads_in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the credit of responses of `bytes`. Raises a read limit that marks have reduced.
    pub fn return_read_credit(&self, bytes: u64) {
        let before = self.reads_in_flight.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} bytes asked for");
        let limit = self.read_limit.load(Ordering::Relaxed);
        if limit < self.read_budget {
            let increase = bytes * MARKED_INCREASE / limit;
            self.read_limit.store((limit + increase).min(self.read_budget), Ordering::Relaxed);
        }
    }

    /// Returns the bytes of responses that may be in flight.
    pub fn read_budget(&self) -> u64 {
        self.read_limit.load(Ordering::Relaxed)
    }

    /// Returns the bytes in flight: 0 on an idle path.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the bytes of outstanding responses: 0 on an idle path.
    pub fn reads_in_flight(&self) -> u64 {
        self.reads_in_flight.load(Ordering::Relaxed)
    }

    /// Handles an acknowledgement of `bytes`, whose credit was returned: grows the window, up to a
    /// maximum that may rise.
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
        // One acknowledged window adds half a run, or [`MARKED_INCREASE`] after marks.
        let increase = bytes * self.increase.load(Ordering::Relaxed) / limit;
        let limit = (limit + increase).min(max);
        self.limit.store(limit, Ordering::Relaxed);
        if limit == max {
            self.increase.store(MIN_WINDOW / 2, Ordering::Relaxed);
        }
    }

    /// Returns the bytes to be sent before an acknowledgement is requested: a third of the window,
    /// at least a run if the window has room for one, at most two. Fewer acknowledgements cost both
    /// sides less.
    pub fn burst(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        (limit / 3).clamp(RUN.min(limit), 2 * RUN)
    }

    /// Handles lost packets: shrinks the window, at most once a round trip. A loss after a whole
    /// window without one does not shrink it: a queue that overflows does so again within the next
    /// window, and an isolated loss has other causes.
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

    /// Takes a rise of the maximum back, because the window was too large.
    fn lower_max(&self, now: Time) {
        if self.max.swap(MAX_WINDOW, Ordering::Relaxed) > MAX_WINDOW {
            let backoff = self.raise_backoff_ns.load(Ordering::Relaxed);
            self.raise_at_ns.store(now.as_ns() + backoff, Ordering::Relaxed);
            self.raise_backoff_ns.store((2 * backoff).min(RAISE_BACKOFF_MAX_NS), Ordering::Relaxed);
            self.limit.fetch_min(MAX_WINDOW, Ordering::Relaxed);
        }
    }

    /// Handles a congestion notification of the peer: shrinks the window, at most once a round
    /// trip. Returns whether it shrank.
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

    /// Handles READ responses that arrived marked: lowers the read limit.
    pub fn on_marked_responses(&self, now: Time) {
        let limit = self.read_limit.load(Ordering::Relaxed);
        if let Some(left) =
            self.read_congestion.on_congestion(limit, now, self.srtt_ns.load(Ordering::Relaxed))
        {
            self.read_limit.store(left.max(MIN_MARKED_WINDOW.min(limit)), Ordering::Relaxed);
        }
    }

    /// Returns whether a queue pair should measure the round trip with the packet that it sends
    /// now. A few measurements a round trip suffice, however many queue pairs send (RFC 6298, 3,
    /// requires one).
    pub fn wants_measure(&self, now: Time) -> bool {
        let pause = self.srtt_ns.load(Ordering::Relaxed) / MEASURES_A_ROUND_TRIP;
        let is_due = now.as_ns() >= self.measured_ns.load(Ordering::Relaxed) + pause;
        if is_due {
            self.measured_ns.store(now.as_ns() + 1, Ordering::Relaxed);
        }
        is_due
    }

    /// Records a measured round trip. Retransmitted packets must not be measured (Karn's
    /// algorithm).
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

    /// Computes both timeouts from the measurements.
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

    /// Returns the smoothed round trip.
    pub fn round_trip_ns(&self) -> u64 {
        match self.srtt_ns.load(Ordering::Relaxed) {
            0 => ROUND_TRIP_UNMEASURED_NS,
            srtt => srtt,
        }
    }

    /// Returns the shortest recent round trip.
    pub fn shortest_round_trip_ns(&self) -> u64 {
        match self.shortest_ns.load(Ordering::Relaxed) {
            0 => ROUND_TRIP_UNMEASURED_NS,
            shortest => shortest,
        }
    }

    /// Returns the time in which other packets may overtake a packet before it counts as lost: a
    /// quarter of the shortest round trip (RFC 8985, 6.2), within bounds.
    pub fn reordering_ns(&self) -> u64 {
        let quarter = self.shortest_ns.load(Ordering::Relaxed) / 4;
        quarter.clamp(*REORDERING_NS.start(), *REORDERING_NS.end())
    }

    /// Returns the time to wait for an acknowledgement before the last packet is sent again as a
    /// probe. `None` if the early timeout comes first, no round trip was measured, or the device
    /// asks for a longer early timeout.
    pub fn probe_timeout_ns(&self) -> Option<u64> {
        Some(self.probe_timeout_ns.load(Ordering::Relaxed)).filter(|ns| *ns != NO_PROBE)
    }

    /// Returns the time to wait for an acknowledgement before packets are sent again, as measured.
    /// This retransmission is earlier than the queue pair's timeout and uses up no retry.
    pub fn early_timeout_ns(&self) -> u64 {
        self.early_timeout_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
