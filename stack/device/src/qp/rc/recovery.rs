//! The timers of a requester: when to send again, and when to give up.
//!
//! Two timeouts run at the same time:
//!
//! - The *early timeout* follows the measured round trip. Doubles while nothing is acknowledged,
//!   and uses up no retry.
//! - The *attribute timeout* (`timeout`, `retry_cnt`) alone decides when the peer counts as gone:
//!   when there was no progress for (`retry_cnt` + 1) × timeout, and never before. The lateness of
//!   a timer does not count, because a process that was stopped or starved has not read the
//!   responses that arrived meanwhile.
//!
//! An RNR NAK, by which the peer asks the requester to wait, stops both.
//!
//! Before the early timeout a *tail probe* is sent, once between two acknowledgements: the last
//! packet, again. If that packet was lost, the probe replaces it. If another packet was lost, the
//! peer sends a NAK for it. If the ACK was lost, the peer sends it again. So the loss of the end of
//! a window is detected after milliseconds. The probe of a READ requests its missing responses.
//!
//! Sources: IBTA vol. 1, 9.7.6.1.3 (local ACK timeout), 9.7.5.2.8 (RNR NAK), C9-141 (retry count);
//! RFC 6298 (doubling); RFC 8985, 7 (tail loss probe).

use urxe_wire::{Psn, RnrTimer};

use super::gap_timer::GapTimer;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use urxe_types::time::Time;

/// The value of `rnr_retry` that means "without limit".
const INFINITE_RNR_RETRY: u8 = 7;
/// The most doublings of the early timeout.
const MAX_BACKOFF: u32 = 8;
/// The longest early timeout, which also applies if the attribute timeout is off.
const LONGEST_EARLY_NS: u64 = 4_000_000_000;
/// The most NAKs and implied NAKs in a row without progress that cause a retransmission. After
/// them only the timer sends again. Otherwise a peer that always sends NAKs would keep both hosts
/// sending at full speed. So would a peer that never sends one response but repeats later ones.
const MAX_NAKS_WITHOUT_PROGRESS: u32 = 64;

/// The action that a timer requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// No timer was due.
    Nothing,
    /// The wait after an RNR NAK is over: continue sending.
    Resume,
    /// Send a tail probe.
    Probe,
    /// Move back to the oldest unacknowledged packet.
    Retransmit,
    /// The peer counts as gone.
    GiveUp,
}

/// The timers and retries of one requester.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// The time to send again; [`Time::NEVER`] while nothing is outstanding.
    retransmit_at: Time,
    /// The time of the tail probe; [`Time::NEVER`] if there is none.
    probe_at: Time,
    /// A tail probe was sent since the last progress.
    has_probed: bool,
    /// The end of the wait after an RNR NAK; [`Time::NEVER`] if there is none.
    resume_at: Time,
    /// The time of the last progress: an acknowledgement, or the first packet sent when none was
    /// outstanding. Later by the lateness of the timers since.
    progress_at: Time,
    backoff: u32,
    naks: u32,
    rnr_left: u8,
    /// The PSN of the packet whose ACK measures the round trip.
    sample_psn: Psn,
    /// The time at which that packet was sent; [`Time::NEVER`] while nothing is measured.
    sampled_at: Time,
    /// The gap of the last implied NAK. Early responses that are still on their way must not repeat
    /// the retransmission.
    implied: Option<GapTimer>,
    /// The time of the last retransmission after a NAK; [`Time::NEVER`] if there was none.
    rewound_at: Time,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            retransmit_at: Time::NEVER,
            probe_at: Time::NEVER,
            has_probed: false,
            resume_at: Time::NEVER,
            progress_at: Time::ZERO,
            backoff: 0,
            naks: 0,
            rnr_left: 0,
            sample_psn: Psn::new(0),
            sampled_at: Time::NEVER,
            implied: None,
            rewound_at: Time::NEVER,
        }
    }
}

impl Recovery {
    pub fn new(qp: &QpCore) -> Self {
        Self { rnr_left: qp.attr.rnr_retry, ..Self::default() }
    }

    /// Allows as many RNR NAKs as the attributes say now.
    pub fn allow_rnr_retries(&mut self, qp: &QpCore) {
        self.rnr_left = qp.attr.rnr_retry;
    }

    pub fn deadline(&self) -> Time {
        if self.resume_at == Time::NEVER {
            self.retransmit_at.min(self.probe_at)
        } else {
            self.resume_at
        }
    }

    /// Returns whether the wait after an RNR NAK lasts.
    pub fn is_waiting(&self, now: Time) -> bool {
        self.resume_at != Time::NEVER && now < self.resume_at
    }

    /// Handles the sending of packet `psn`. `measure`: its ACK measures the round trip, because the
    /// packet is sent for the first time and requests an ACK.
    pub fn on_sent(&mut self, psn: Psn, measure: bool, qp: &QpCore, cx: &QpContext<'_>) {
        if measure && self.sampled_at == Time::NEVER && cx.path.window.wants_measure(cx.now) {
            (self.sample_psn, self.sampled_at) = (psn, cx.now);
        }
        if self.retransmit_at == Time::NEVER {
            self.progress_at = cx.now;
            self.arm(qp, cx);
        }
    }

    /// Handles an acknowledgement. `una` is the oldest unacknowledged PSN. `outstanding`: there are
    /// still unacknowledged packets.
    pub fn on_progress(&mut self, una: Psn, outstanding: bool, qp: &QpCore, cx: &QpContext<'_>) {
        if self.sampled_at != Time::NEVER && una.distance(self.sample_psn) > 0 {
            cx.path.window.on_round_trip(cx.now.since_ns(self.sampled_at));
            self.sampled_at = Time::NEVER;
        }
        self.progress_at = cx.now;
        self.backoff = 0;
        self.has_probed = false;
        self.naks = 0;
        self.rnr_left = qp.attr.rnr_retry;
        self.implied = None;
        // The peer executed the request that the RNR NAK was for, so that NAK is outdated.
        self.resume_at = Time::NEVER;
        if outstanding {
            self.arm(qp, cx);
        } else {
            self.disarm();
        }
    }

    /// Handles a sequence NAK. Returns whether to move back.
    ///
    /// The earliest response to a retransmission arrives one round trip later. The shortest
    /// measured round trip counts, because the usual one may be many times longer. A NAK before
    /// that time refers to the first transmission. To move back for each such NAK would send
    /// several copies of the window, which overtake each other and cause more NAKs.
    pub fn on_nak(&mut self, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        self.naks += 1;
        self.sampled_at = Time::NEVER;
        if self.naks > MAX_NAKS_WITHOUT_PROGRESS {
            return false;
        }
        if self.rewound_at != Time::NEVER {
            let at = self.rewound_at;
            if cx.now < at.plus_ns(cx.path.window.shortest_round_trip_ns()) {
                // If the NAK does refer to the retransmission, this costs one more round trip
                // instead of a whole timeout.
                self.retransmit_at =
                    self.retransmit_at.min(at.plus_ns(2 * cx.path.window.round_trip_ns()));
                return false;
            }
        }
        self.rewound_at = cx.now;
        self.arm(qp, cx);
        true
    }

    /// Returns whether an implied NAK caused a retransmission, and there was no progress since.
    pub fn rewound_for_responses(&self) -> bool {
        self.implied.is_some()
    }

    /// Handles response `psn`, before which another is missing. Returns whether to move back.
    pub fn on_implied_nak(&mut self, psn: Psn, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        self.sampled_at = Time::NEVER;
        let asks = GapTimer::on_out_of_order(
            &mut self.implied,
            psn,
            cx.now,
            cx.path.window.round_trip_ns(),
        );
        if !asks || self.naks >= MAX_NAKS_WITHOUT_PROGRESS {
            return false;
        }
        self.naks += 1;
        self.arm(qp, cx);
        true
    }

    /// Handles an RNR NAK: the peer has no receive posted and asks the requester to wait. Returns
    /// `false` if the peer has asked too often.
    pub fn on_rnr_nak(&mut self, timer: RnrTimer, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        if qp.attr.rnr_retry != INFINITE_RNR_RETRY {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return false,
            }
        }
        self.sampled_at = Time::NEVER;
        self.implied = None;
        self.resume_at = cx.now.plus_ns(timer.duration_ns());
        self.disarm();
        true
    }

    /// Returns the action of the timer that is due at `cx.now`.
    pub fn on_timer(&mut self, qp: &QpCore, cx: &QpContext<'_>) -> Due {
        if self.resume_at != Time::NEVER {
            if cx.now < self.resume_at {
                return Due::Nothing;
            }
            self.resume_at = Time::NEVER;
            return Due::Resume;
        }
        if cx.now < self.retransmit_at {
            if cx.now < self.probe_at {
                return Due::Nothing;
            }
            self.probe_at = Time::NEVER;
            self.has_probed = true;
            // The next response may be for the second transmission (Karn's algorithm).
            self.sampled_at = Time::NEVER;
            return Due::Probe;
        }
        self.progress_at = self.progress_at.plus_ns(cx.now.since_ns(self.retransmit_at));
        if self.give_up_at(qp).is_some_and(|at| cx.now >= at) {
            return Due::GiveUp;
        }
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
        self.sampled_at = Time::NEVER;
        self.implied = None;
        self.arm(qp, cx);
        Due::Retransmit
    }

    fn give_up_at(&self, qp: &QpCore) -> Option<Time> {
        qp.timeout_ns().map(|timeout_ns| self.give_up_after(timeout_ns, qp))
    }

    fn give_up_after(&self, timeout_ns: u64, qp: &QpCore) -> Time {
        self.progress_at.plus_ns(timeout_ns.saturating_mul(u64::from(qp.attr.retry_cnt) + 1))
    }

    #[inline]
    fn arm(&mut self, qp: &QpCore, cx: &QpContext<'_>) {
        let early = cx
            .path
            .window
            .early_timeout_ns()
            .saturating_mul(1 << self.backoff)
            .min(LONGEST_EARLY_NS);
        self.retransmit_at = match qp.timeout_ns() {
            None => cx.now.plus_ns(early),
            Some(timeout_ns) => {
                let at = cx.now.plus_ns(early.min(timeout_ns));
                at.min(self.give_up_after(timeout_ns, qp))
            }
        };
        let probes = !self.has_probed && self.backoff == 0;
        let probe = cx.path.window.probe_timeout_ns().filter(|_| probes);
        self.probe_at = probe.map_or(Time::NEVER, |probe| cx.now.plus_ns(probe));
    }

    fn disarm(&mut self) {
        self.retransmit_at = Time::NEVER;
        self.probe_at = Time::NEVER;
    }
}
