//! Statistics: the samples of rounds, medians and ratios.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest distinct time: a minute.
const MAX_NS: u64 = 60_000_000_000;
/// The significant digits of a time.
const DIGITS: u8 = 3;

/// Times of messages.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// Returns an empty set.
    pub fn new() -> Self {
        #[expect(clippy::expect_used, reason = "the bounds are constants that the library takes")]
        Self(Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("good bounds"))
    }

    /// Records a time.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(MAX_NS).max(1));
    }

    /// Returns the number of latencies.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns the quantiles in microseconds.
    pub fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        if self.0.is_empty() {
            return Quantiles::default();
        }
        Quantiles {
            min: self.0.min() as f64 / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1e3,
            mean: self.0.mean() / 1e3,
        }
    }
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The shortest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl Quantiles {
    /// Computes each field with `of`, which receives the field's accessor.
    fn each(of: impl Fn(fn(&Self) -> f64) -> f64) -> Self {
        Self {
            min: of(|times| times.min),
            p50: of(|times| times.p50),
            p90: of(|times| times.p90),
            p99: of(|times| times.p99),
            p999: of(|times| times.p999),
            max: of(|times| times.max),
            mean: of(|times| times.mean),
        }
    }

    /// Returns all times multiplied by `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self::each(|time| time(&self) * factor)
    }
}

/// The measurements of a round, or their median field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Payload bits a second, in 10^9.
    pub gbps: f64,
    /// Messages (of a floor: datagrams) a second, in 10^6.
    pub mmps: f64,
    /// Times of messages.
    pub usec: Option<Quantiles>,
    /// Messages moved.
    pub messages: u64,
    /// The share of datagrams that did not arrive; only for floors, which do not retransmit.
    pub lost: f64,
}

impl Sample {
    /// Returns the sample of `messages` of `size` bytes in `elapsed`.
    pub fn moved(messages: u64, size: usize, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let rate = if seconds > 0.0 { messages as f64 / seconds } else { 0.0 };
        Self { gbps: rate * size as f64 * 8.0 / 1e9, mmps: rate / 1e6, messages, ..Self::default() }
    }

    /// Returns the sample of consecutive messages.
    pub fn timed(latencies: &Latencies) -> Self {
        Self { usec: Some(latencies.quantiles()), messages: latencies.len(), ..Self::default() }
    }

    /// Adds a sample of the other direction at the same time.
    pub fn with(self, other: Self) -> Self {
        Self {
            gbps: self.gbps + other.gbps,
            mmps: self.mmps + other.mmps,
            messages: self.messages + other.messages,
            ..self
        }
    }
}

/// Returns the median, or the mean of the two middle values; 0 without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Returns the median round, field by field; the messages of all rounds.
pub fn median_sample(rounds: &[Sample]) -> Sample {
    let of = |field: fn(&Sample) -> f64| median(rounds.iter().map(field));
    let times: Vec<Quantiles> = rounds.iter().filter_map(|round| round.usec).collect();
    let median_times = || Quantiles::each(|time| median(times.iter().map(time)));
    Sample {
        gbps: of(|round| round.gbps),
        mmps: of(|round| round.mmps),
        usec: (!times.is_empty()).then(median_times),
        messages: rounds.iter().map(|round| round.messages).sum(),
        lost: of(|round| round.lost),
    }
}

/// Returns `value` divided by `of`, or `None` if `of` is 0.
pub fn ratio(value: f64, of: f64) -> Option<f64> {
    (of > 0.0 && value.is_finite()).then(|| value / of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([7.0]), 7.0);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn a_round_that_was_disturbed_does_not_move_the_median() {
        let round = |gbps: f64, p99| Sample {
            gbps,
            usec: Some(Quantiles { p99, ..Quantiles::default() }),
            messages: 10,
            ..Sample::default()
        };
        let of = median_sample(&[round(10.0, 5.0), round(0.1, 900.0), round(11.0, 6.0)]);
        assert_eq!((of.gbps, of.usec.unwrap().p99, of.messages), (10.0, 6.0, 30));
        assert_eq!(median_sample(&[Sample::default()]).usec, None);
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.quantiles(), Quantiles::default());
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        let of = latencies.quantiles();
        let near = |found: f64, expected: f64| (found - expected).abs() <= expected * 2e-3;
        for (found, expected) in
            [(of.min, 1.0), (of.p50, 500.0), (of.p90, 900.0), (of.p99, 990.0), (of.max, 1000.0)]
        {
            assert!(near(found, expected), "{found} should be {expected}");
        }
        assert!(near(of.mean, 500.5) && near(of.times(0.5).p99, 495.0), "{of:?}");
    }

    #[test]
    fn rates_are_payload_by_time() {
        let sample = Sample::moved(1_000_000, 1000, Duration::from_secs(2));
        assert!((sample.gbps - 4.0).abs() < 1e-9 && (sample.mmps - 0.5).abs() < 1e-9, "{sample:?}");
        assert_eq!(Sample::moved(5, 1000, Duration::ZERO).gbps, 0.0);
        assert_eq!(sample.with(sample).messages, 2_000_000);
    }

    #[test]
    fn there_is_no_ratio_to_nothing() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(f64::NAN, 1.0), None);
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
    }
}
