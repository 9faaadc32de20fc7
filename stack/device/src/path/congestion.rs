//! How far to go back when a path is congested, by how often it is.
//!
//! The estimate of DCQCN and DCTCP: `alpha` is the share of round trips in which the peer, or a
//! mark, told of congestion, smoothed. What a sender may have on its way becomes smaller by half of
//! that share, once a round trip. So a path that is congested all the time is left by halves, and
//! one that is congested now and then keeps nearly all.
//!
//! Sources: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM 2015), 3; RFC
//! 8257, 3.3.

use super::ecn::CNP_PAUSE_NS;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::time::Time;

/// All, in units of `alpha`.
const ONE: u64 = 1 << 10;
/// The share of the newest round trip in `alpha`: 1/16, as in RFC 8257.
const GAIN_SHIFT: u32 = 4;
/// After so many round trips without a word nothing is left of `alpha`.
const FORGOTTEN_AFTER: u64 = 128;

/// What is known of a path's congestion. Who are told at the same time may count a cut twice, no
/// worse.
#[derive(Debug, Default)]
pub(crate) struct CongestionEstimator {
    /// In [`ONE`]ths. Has no value while `notified_ns` is 0.
    alpha: AtomicU64,
    /// When it was last told, 0 before.
    notified_ns: AtomicU64,
}

impl CongestionEstimator {
    /// Forgets a former peer.
    pub fn reset(&self) {
        self.notified_ns.store(0, Ordering::Relaxed);
    }

    /// Congestion was told of. What is left of `limit`, or `None` if it was cut less than a round
    /// trip ago.
    pub fn on_congestion(&self, limit: u64, now: Time, round_trip_ns: u64) -> Option<u64> {
        let period_ns = round_trip_ns.max(CNP_PAUSE_NS);
        let notified_ns = self.notified_ns.load(Ordering::Relaxed);
        // A path of which nothing is known counts as congested all the time.
        let mut alpha = ONE;
        if notified_ns != 0 {
            let periods = now.as_ns().saturating_sub(notified_ns) / period_ns;
            if periods == 0 {
                return None;
            }
            alpha = self.alpha.load(Ordering::Relaxed);
            for _ in 1..periods.min(FORGOTTEN_AFTER) {
                alpha -= alpha >> GAIN_SHIFT;
            }
            alpha += (ONE - alpha) >> GAIN_SHIFT;
        }
        self.alpha.store(alpha, Ordering::Relaxed);
        self.notified_ns.store(now.as_ns().max(1), Ordering::Relaxed);
        Some(limit - limit * alpha / (2 * ONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP_NS: u64 = 100_000;

    /// What is left of 1,000 when congestion is told of at these round trips.
    fn left(round_trips: impl IntoIterator<Item = u64>) -> Vec<Option<u64>> {
        let estimator = CongestionEstimator::default();
        let at = |nr: u64| Time::from_ns(1 + nr * ROUND_TRIP_NS);
        round_trips
            .into_iter()
            .map(|nr| estimator.on_congestion(1_000, at(nr), ROUND_TRIP_NS))
            .collect()
    }

    #[test]
    fn what_is_congested_all_the_time_is_halved() {
        assert_eq!(left(0..5), [Some(500); 5]);
    }

    #[test]
    fn one_cut_a_round_trip() {
        assert_eq!(left([0, 0, 0, 1]), [Some(500), None, None, Some(500)]);
        // However short it is, no more often than the peer tells.
        let estimator = CongestionEstimator::default();
        assert!(estimator.on_congestion(1_000, Time::from_ns(1), 10).is_some());
        assert!(estimator.on_congestion(1_000, Time::from_ns(CNP_PAUSE_NS), 10).is_none());
        assert!(estimator.on_congestion(1_000, Time::from_ns(CNP_PAUSE_NS + 1), 10).is_some());
    }

    #[test]
    fn what_is_congested_seldom_keeps_nearly_all() {
        let left = left((0..50).map(|nr| nr * 20));
        assert_eq!(left[0], Some(500));
        let at_last = left[49].unwrap();
        // One of twenty.
        assert!((950..985).contains(&at_last), "{at_last}");
    }
}
