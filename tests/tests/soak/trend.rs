//! The check that a process does not grow.
//!
//! After the warm-up, the samples are divided into three parts of equal length. The medians of the
//! first and the last part give the growth of the resident memory. A single sample has noise of a
//! few hundred KiB: buffers of the C library, stacks, pages of the program. Descriptors and threads
//! have no noise, because a sample is taken while only the lasting connections exist.

use std::fmt;

/// The allowed growth of the resident memory, in KiB an hour.
const MAX_KIB_PER_HOUR: f64 = 1024.0;
/// The growth that counts as noise, in KiB.
const NOISE_KIB: f64 = 1024.0;

/// The figures of a process at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Minutes since the start.
    pub minutes: f64,
    pub rss_kib: u64,
    pub descriptors: u64,
    pub threads: u64,
}

/// The result of the check.
#[derive(Clone, Debug, Default)]
pub struct Trend {
    /// Growth between the medians of the first and the last third, in KiB.
    pub growth_kib: f64,
    /// Hours between the middles of these thirds.
    pub hours: f64,
    pub faults: Vec<String>,
}

/// Checks the samples of a process. The first one, and those until `warm_up` minutes, give the
/// allowed numbers of descriptors and threads.
pub fn judge(samples: &[Sample], warm_up: f64) -> Trend {
    let warm = samples.iter().take_while(|sample| sample.minutes <= warm_up).count();
    let warm = warm.max(1).min(samples.len());
    let (before, after) = samples.split_at(warm);
    let mut trend = Trend::default();
    for (what, value) in [
        ("descriptors", (|sample| sample.descriptors) as fn(&Sample) -> u64),
        ("threads", |sample| sample.threads),
    ] {
        let allowed = before.iter().map(value).max().unwrap_or(0);
        if let Some(worst) = after.iter().max_by_key(|sample| value(sample))
            && value(worst) > allowed
        {
            let (found, minutes) = (value(worst), worst.minutes);
            trend
                .faults
                .push(format!("{found} {what} after {minutes:.0} minutes, at first {allowed}"));
        }
    }
    let third = after.len() / 3;
    if third == 0 {
        return trend;
    }
    let (first, last) = (&after[..third], &after[after.len() - third..]);
    let middle = |part: &[Sample]| (part[0].minutes + part[part.len() - 1].minutes) / 2.0;
    trend.growth_kib = median(last) - median(first);
    trend.hours = (middle(last) - middle(first)) / 60.0;
    if trend.growth_kib > NOISE_KIB.max(MAX_KIB_PER_HOUR * trend.hours) {
        trend.faults.push(format!("the resident memory grows: {trend}"));
    }
    trend
}

fn median(part: &[Sample]) -> f64 {
    let mut values: Vec<u64> = part.iter().map(|sample| sample.rss_kib).collect();
    values.sort_unstable();
    values[values.len() / 2] as f64
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.0} KiB in {:.2} hours", self.growth_kib, self.hours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hours, a sample a minute, with noise of 400 KiB and `growth` KiB a minute.
    fn samples(growth: f64, descriptors: impl Fn(u32) -> u64) -> Vec<Sample> {
        let sample = |minute: u32| Sample {
            minutes: minute.into(),
            rss_kib: 60_000
                + (f64::from(minute) * growth) as u64
                + u64::from(minute.wrapping_mul(0x9e37_79b9) % 400),
            descriptors: descriptors(minute),
            threads: 2,
        };
        (1..=120).map(sample).collect()
    }

    #[test]
    fn noise_is_no_growth() {
        let trend = judge(&samples(0.0, |_| 20), 5.0);
        assert!(trend.faults.is_empty(), "{trend:?}");
    }

    #[test]
    fn growth_of_memory_is_found() {
        // 1.5 MiB an hour.
        let trend = judge(&samples(25.6, |_| 20), 5.0);
        assert!(trend.faults.len() == 1 && trend.faults[0].contains("memory"), "{trend:?}");
    }

    #[test]
    fn one_descriptor_more_is_found() {
        let trend = judge(&samples(0.0, |minute| 20 + u64::from(minute == 70)), 5.0);
        let fault = "21 descriptors after 70 minutes, at first 20";
        assert_eq!(trend.faults, [fault]);
        // A warm-up of no minutes has one sample.
        assert_eq!(
            judge(&samples(0.0, |minute| 20 + u64::from(minute == 70)), 0.0).faults,
            [fault]
        );
        // The warm-up may have more.
        let trend = judge(&samples(0.0, |minute| 20 + u64::from(minute < 5)), 5.0);
        assert!(trend.faults.is_empty(), "{trend:?}");
    }
}
