//! An estimate of how often a path is congested, as in DCTCP and DCQCN.
//!
//! `alpha` is the smoothed share of round trips in which the peer or a mark reported congestion.
//! After a report, a sender reduces its limit by half of that share, once a round trip. So a path
//! that is always congested halves its limit each time, and a path that is seldom congested keeps
//! nearly all of it.
//!
//! Sources: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM 2015), 3; RFC
//! 8257, 3.3.

use super::ecn::CNP_INTERVAL_NS;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::time::Time;

/// The value of `alpha` for a share of 1.
const ONE: u64 = 1 << 10;
/// The weight of the newest round trip in `alpha` as a shift: 1/16, as in RFC 8257.
const GAIN_SHIFT: u32 = 4;
/// The round trips without a report after which `alpha` is 0.
const FORGOTTEN_AFTER: u64 = 128;

/// The estimate of one path. Threads that report at the same time may count a reduction twice,
/// which does no harm.
#[derive(Debug, Default)]
pub(crate) struct CongestionEstimator {
    /// The share in units of 1/[`ONE`]. Undefined while `notified_ns` is 0.
    alpha: AtomicU64,
    /// The time of the last report that reduced the limit, in nanoseconds. 0 before the first.
    notified_ns: AtomicU64,
}

impl CongestionEstimator {
    /// Forgets a former peer.
    pub fn reset(&self) {
        self.notified_ns.store(0, Ordering::Relaxed);
    }

    /// Handles a report of congestion. Returns the reduced `limit`, or `None` if the limit was
    /// reduced less than a round trip ago.
    pub fn on_congestion(&self, limit: u64, now: Time, round_trip_ns: u64) -> Option<u64> {
        let period_ns = round_trip_ns.max(CNP_INTERVAL_NS);
        let notified_ns = self.notified_ns.load(Ordering::Relaxed);
        // Before the first report, the path counts as always congested.
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

    /// Returns the limits that follow from 1,000 when congestion is reported in these round trips.
    fn left(round_trips: impl IntoIterator<Item = u64>) -> Vec<Option<u64>> {
        let estimator = CongestionEstimator::default();
        let at = |nr: u64| Time::from_ns(1 + nr * ROUND_TRIP_NS);
        round_trips
            .into_iter()
            .map(|nr| estimator.on_congestion(1_000, at(nr), ROUND_TRIP_NS))
            .collect()
    }

    #[test]
    fn a_path_that_is_always_congested_is_halved() {
        assert_eq!(left(0..5), [Some(500); 5]);
    }

    #[test]
    fn the_limit_is_reduced_once_a_round_trip() {
        assert_eq!(left([0, 0, 0, 1]), [Some(500), None, None, Some(500)]);
        // A short round trip does not reduce more often than the peer may report.
        let estimator = CongestionEstimator::default();
        assert!(estimator.on_congestion(1_000, Time::from_ns(1), 10).is_some());
        assert!(estimator.on_congestion(1_000, Time::from_ns(CNP_INTERVAL_NS), 10).is_none());
        assert!(estimator.on_congestion(1_000, Time::from_ns(CNP_INTERVAL_NS + 1), 10).is_some());
    }

    #[test]
    fn a_path_that_is_seldom_congested_keeps_nearly_all() {
        let left = left((0..50).map(|nr| nr * 20));
        assert_eq!(left[0], Some(500));
        let at_last = left[49].unwrap();
        // One round trip of twenty is congested.
        assert!((950..985).contains(&at_last), "{at_last}");
    }
}
