//! The time to repeat the request for a packet that did not arrive. [`super::reorder_buffer`]
//! decides when to request the packet for the first time.
//!
//! The specification wants one NAK for each gap, since the sender then sends everything from there
//! on (go-back-N). If the packet is lost again, only the timer of the sender would repeat it, a
//! thousand round trips later. The receiver can detect this earlier: packets behind the gap arrive
//! a second time.
//!
//! ```text
//!   requested 5:   … 14 15 16   (5) 6 7 8 …
//!                                        ↑ request again: three repeated packets in order
//! ```
//!
//! A single repeated packet may be a duplicate made by the network, or may have been overtaken. It
//! counts after a round trip has passed since the request. The probe of a waiting sender is such a
//! packet.
//!
//! Source: IBTA vol. 1, 9.7.5.2.2 (one NAK until the expected packet arrives). A repeated NAK
//! counts as the NAK of a new gap.

use urxe_wire::Psn;

use urxe_types::time::Time;

/// The number of repeated packets in order that show that the sender moved back.
const IN_ORDER: u8 = 3;

/// A gap whose first packet was requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct GapTimer {
    requested_at: Time,
    /// The highest PSN behind the gap that arrived since the request.
    highest: Psn,
    /// The PSN of the last repeated packet.
    last_repeated: Psn,
    /// The number of repeated packets in order.
    repeated: u8,
}

impl GapTimer {
    /// Starts the timer of the gap before `psn`, whose first packet is requested at `now`.
    pub fn new(psn: Psn, now: Time) -> Self {
        Self { requested_at: now, highest: psn, last_repeated: psn, repeated: 0 }
    }

    /// Handles packet `psn`, which is not the expected one. `gap` is the timer of the gap, if its
    /// first packet was requested. Returns whether to request that packet now.
    pub fn on_out_of_order(
        gap: &mut Option<Self>,
        psn: Psn,
        now: Time,
        round_trip_ns: u64,
    ) -> bool {
        match gap {
            Some(gap) => gap.on_packet(psn, now, round_trip_ns),
            None => {
                *gap = Some(Self::new(psn, now));
                true
            }
        }
    }

    /// Handles packet `psn` behind the gap. Returns whether to repeat the request.
    fn on_packet(&mut self, psn: Psn, now: Time, round_trip_ns: u64) -> bool {
        if psn.distance(self.highest) > 0 {
            (self.highest, self.repeated) = (psn, 0);
            return false;
        }
        let in_order = self.repeated > 0 && psn == self.last_repeated.next();
        self.repeated = if in_order { self.repeated + 1 } else { 1 };
        self.last_repeated = psn;
        let rewound = self.repeated >= IN_ORDER || now >= self.requested_at.plus_ns(round_trip_ns);
        if rewound {
            *self = Self::new(psn, now);
        }
        rewound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP_NS: u64 = 1_000_000;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    /// Requests the packet before the first of `psns`. Returns the indices of the others that
    /// repeat the request.
    fn asks(psns: &[u32]) -> Vec<usize> {
        let mut gap = GapTimer::new(Psn::masked(psns[0]), at(1));
        let mut asks = |place: usize| gap.on_packet(Psn::masked(psns[place]), at(2), ROUND_TRIP_NS);
        (1..psns.len()).filter(|place| asks(*place)).collect()
    }

    #[test]
    fn a_repeated_loss_repeats_the_request() {
        assert_eq!(asks(&[6, 7, 8, 9, 6, 7, 8, 9, 10]), [6]);
        assert_eq!(asks(&[6, 7, 8, 9, 6, 7, 8, 9, 6, 7, 8, 9]), [6, 10], "and again");
        assert_eq!(asks(&[6, 7, 8, 9, 7, 8, 9]), [6], "with the one behind it");
        let near_wrap = [0xff_ffff, 0, 1, 2, 0xff_ffff, 0, 1];
        assert_eq!(asks(&near_wrap), [6]);
    }

    #[test]
    fn duplicates_and_overtaken_packets_repeat_no_request() {
        assert_eq!(asks(&[6, 6, 7, 7, 8, 8, 9, 9]), [0; 0], "each twice");
        assert_eq!(asks(&[8, 7, 6, 9, 12, 10, 11, 13]), [0; 0], "two overtaken at a time");
        assert_eq!(asks(&[6, 8, 7, 10, 9, 12, 11]), [0; 0], "each pair swapped");
        assert_eq!(asks(&[6, 9, 8, 8, 7, 7, 6, 6, 8, 7, 6]), [0; 0], "old ones without order");
    }

    #[test]
    fn after_a_round_trip_one_repeated_packet_is_enough() {
        let mut gap = GapTimer::new(Psn::new(6), at(0));
        assert!(!gap.on_packet(Psn::new(9), at(ROUND_TRIP_NS), ROUND_TRIP_NS), "it is new");
        assert!(!gap.on_packet(Psn::new(9), at(ROUND_TRIP_NS - 1), ROUND_TRIP_NS));
        assert!(gap.on_packet(Psn::new(9), at(ROUND_TRIP_NS), ROUND_TRIP_NS), "the probe");
        assert!(
            !gap.on_packet(Psn::new(9), at(ROUND_TRIP_NS + 1), ROUND_TRIP_NS),
            "asked a moment ago"
        );
    }
}
