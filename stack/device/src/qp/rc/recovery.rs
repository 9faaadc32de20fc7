//! When a requester sends again, and when it gives up.
//!
//! Two clocks run beside each other. The *early timeout* follows the measured round trip, doubles
//! while nothing comes back, and uses up no retry. The *attribute timeout* (`timeout`, `retry_cnt`)
//! decides alone when the peer counts as gone: when nothing has moved for (`retry_cnt` + 1) ×
//! timeout, and never before. A wait that the peer asked for (RNR NAK) stops both.
//!
//! Before the early timeout a *probe* goes out, once between two signs of progress: the last packet
//! that was sent, once more. If it was lost itself it arrives now, if another was the peer asks for
//! it, and if the answer was it comes again: who loses the end of a window learns it after
//! milliseconds. Of a READ the probe is what is missing of it.
//!
//! Sources: IBTA vol. 1, 9.7.6.1.3 (local ACK timeout), 9.7.5.2.8 (RNR NAK), C9-141 (retry count);
//! RFC 6298 for the doubling; RFC 8985, 7 (tail loss probe).

use urxe_wire::{Psn, RnrTimer};

use super::gap_timer::GapTimer;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use urxe_types::time::Time;

/// `rnr_retry` of this value means for ever.
const INFINITE_RNR_RETRY: u8 = 7;
/// The early timeout doubles so often at most.
const MAX_BACKOFF: u32 = 8;
/// With the timeout switched off, still send again after so long at most.
const LONGEST_EARLY_NS: u64 = 4_000_000_000;
/// After so many NAKs in a row without progress, only the timer sends again: a peer that always
/// NAKs must not make two hosts exchange packets at full speed.
const MAX_NAKS_WITHOUT_PROGRESS: u32 = 64;

/// What a due timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing: it was not due.
    Nothing,
    /// The wait that the peer asked for is over: go on sending.
    Resume,
    /// Send the last packet once more.
    Probe,
    /// Go back to the oldest unacknowledged packet.
    Retransmit,
    /// The peer counts as gone.
    GiveUp,
}

/// Timers and retries of one requester.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// When to send again, [`Time::NEVER`] while nothing is outstanding.
    retransmit_at: Time,
    /// When to probe, before that; [`Time::NEVER`] if not at all.
    probe_at: Time,
    /// A probe went out since something last moved.
    has_probed: bool,
    /// The end of a wait that the peer asked for, [`Time::NEVER`] while it asks for none.
    resume_at: Time,
    /// When something last moved, or became outstanding after nothing was.
    progress_at: Time,
    backoff: u32,
    naks: u32,
    rnr_left: u8,
    /// A packet whose acknowledgement measures the round trip, and when it was sent.
    sample_psn: Psn,
    /// [`Time::NEVER`] while none is measured.
    sampled_at: Time,
    /// An implied NAK went back to the oldest that is not answered: the answers still under way
    /// from before must not repeat it.
    implied: Option<GapTimer>,
    /// When a NAK last made the requester go back, [`Time::NEVER`] if none did.
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

    /// The peer may ask to wait as often as the attributes say by now.
    pub fn allow_rnr_retries(&mut self, qp: &QpCore) {
        self.rnr_left = qp.attr.rnr_retry;
    }

    /// Nothing is outstanding any more.
    pub fn stop(&mut self) {
        self.disarm();
        self.resume_at = Time::NEVER;
        self.sampled_at = Time::NEVER;
        self.implied = None;
        self.rewound_at = Time::NEVER;
    }

    pub fn deadline(&self) -> Time {
        if self.resume_at == Time::NEVER {
            self.retransmit_at.min(self.probe_at)
        } else {
            self.resume_at
        }
    }

    /// Whether the peer asked to wait.
    pub fn is_waiting(&self, now: Time) -> bool {
        self.resume_at != Time::NEVER && now < self.resume_at
    }

    /// A packet was sent. `measure`: its acknowledgement is a clean measure of the round trip.
    pub fn on_sent(&mut self, psn: Psn, measure: bool, qp: &QpCore, cx: &QpContext<'_>) {
        if measure && self.sampled_at == Time::NEVER && cx.path.window.wants_measure(cx.now) {
            (self.sample_psn, self.sampled_at) = (psn, cx.now);
        }
        if self.retransmit_at == Time::NEVER {
            self.progress_at = cx.now;
            self.arm(qp, cx);
        }
    }

    /// Something was acknowledged; `una` is the oldest that is not, `outstanding` whether anything
    /// still is.
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
        // What the peer asked to wait for has arrived after all: that RNR NAK was old.
        self.resume_at = Time::NEVER;
        if outstanding {
            self.arm(qp, cx);
        } else {
            self.disarm();
        }
    }

    /// A sequence NAK came. Whether to go back for it.
    ///
    /// What was sent again can be answered a round trip later at the earliest, the shortest that
    /// was measured: the usual one may be many times that. A NAK before that speaks of what was
    /// sent the first time: going back for each of them would put copy upon copy of the window on
    /// the wire, which are overtaken by each other and bring more NAKs.
    pub fn on_nak(&mut self, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        self.naks += 1;
        self.sampled_at = Time::NEVER;
        if self.naks > MAX_NAKS_WITHOUT_PROGRESS {
            return false;
        }
        if self.rewound_at != Time::NEVER {
            let at = self.rewound_at;
            if cx.now < at.plus_ns(cx.path.window.shortest_round_trip_ns()) {
                // If it did speak of the second copy, it costs one more round trip and not a whole
                // timeout.
                self.retransmit_at =
                    self.retransmit_at.min(at.plus_ns(2 * cx.path.window.round_trip_ns()));
                return false;
            }
        }
        self.rewound_at = cx.now;
        self.arm(qp, cx);
        true
    }

    /// Whether an implied NAK made the requester go back, and nothing moved since.
    pub fn rewound_for_responses(&self) -> bool {
        self.implied.is_some()
    }

    /// The answer `psn` came, and one before it did not. Whether to go back for that.
    pub fn on_implied_nak(&mut self, psn: Psn, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        self.sampled_at = Time::NEVER;
        let asks = GapTimer::on_out_of_order(
            &mut self.implied,
            psn,
            cx.now,
            cx.path.window.round_trip_ns(),
        );
        if asks {
            self.arm(qp, cx);
        }
        asks
    }

    /// The peer has no receive posted and asks to wait; false when it has asked too often.
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

    /// The clock says `cx.now`.
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
            // What is answered now may be the second copy (Karn).
            self.sampled_at = Time::NEVER;
            return Due::Probe;
        }
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
