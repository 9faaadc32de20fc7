//! Faults as text: `loss=1%,delay=50us,reorder=0.5%,seed=7`.
//!
//! ```text
//! faults = fault *("," fault)
//! fault  = ("loss" / "mark" / "duplicate" / "reorder" / "corrupt" / "rebind") "=" share
//!        / ("delay" / "jitter" / "late") "=" time
//!        / "burst" "=" number
//!        / "rate" "=" number ("k" / "M" / "G")
//!        / "seed" "=" number
//! share  = number ["." 1*4digit] "%"
//! time   = number ("ns" / "us" / "ms" / "s")
//! ```
//!
//! | fault | meaning |
//! |---|---|
//! | `mark` | the share of ECN-capable packets that are marked |
//! | `rebind` | the share of packets from which on the UDP source port is another one |
//! | `late` | the maximum additional delay of a reordered packet |
//! | `burst` | the maximum number of packets that one loss takes |
//! | `rate` | bits per second |
//!
//! The `Display` form of a [`FaultSpec`] parses to the same value.

use std::fmt;
use std::str::FromStr;

use crate::LinkFaults;
use urxe_types::rng::Probability;

/// The maximum time, which is longer than any timeout of a queue pair.
const TIME_MAX_NS: u64 = 60_000_000_000;
/// The units of time with their nanoseconds, the longest first.
const TIME_UNITS: [(&str, u64); 4] =
    [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
/// The units of the rate with their bits per second, the largest first.
const RATE_UNITS: [(&str, u64); 3] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];
/// Parts per million in one percent.
const PPM_PER_PERCENT: u32 = 10_000;

/// Selects a field of the faults of a link.
type FieldOf<T> = fn(&mut LinkFaults) -> &mut T;
/// The faults that are a share of the packets.
const SHARES: [(&str, FieldOf<Probability>); 6] = [
    ("loss", |link| &mut link.loss),
    ("mark", |link| &mut link.mark),
    ("duplicate", |link| &mut link.duplicate),
    ("reorder", |link| &mut link.reorder),
    ("corrupt", |link| &mut link.corrupt),
    ("rebind", |link| &mut link.rebind),
];
/// The faults that are a time.
const TIMES: [(&str, FieldOf<u64>); 3] = [
    ("late", |link| &mut link.reorder_delay_ns),
    ("delay", |link| &mut link.delay_ns),
    ("jitter", |link| &mut link.jitter_ns),
];

/// The faults that a device applies to received packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSpec {
    /// The behaviour of the link. Its MTU has no effect, because packets that exceed it did not
    /// arrive.
    pub link: LinkFaults,
    /// The seed of the decisions. `None` takes a random number of the operating system.
    pub seed: Option<u64>,
}

impl Default for FaultSpec {
    /// Returns a specification without faults.
    fn default() -> Self {
        Self { link: LinkFaults { delay_ns: 0, ..LinkFaults::default() }, seed: None }
    }
}

impl FaultSpec {
    /// Returns whether the specification has no faults.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        let LinkFaults {
            loss,
            mark,
            duplicate,
            reorder,
            corrupt,
            rebind,
            delay_ns,
            jitter_ns,
            bandwidth_bps,
            ..
        } = self.link;
        [loss, mark, duplicate, reorder, corrupt, rebind] == [Probability::NEVER; 6]
            && (delay_ns, jitter_ns, bandwidth_bps) == (0, 0, None)
    }
}

urxe_types::errors! {
    /// The reason why a text is not a fault specification.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum FaultError {
        /// The part is not of the form `NAME=VALUE`.
        #[error("{given:?} is not a fault; expected NAME=VALUE, separated by commas: \
                 loss=1%,delay=50us,seed=7")]
        Form { given: String } = EINVAL,
        #[error("unknown fault {given:?}; the faults are loss, burst, mark, duplicate, reorder, \
                 late, corrupt, rebind, delay, jitter, rate and seed")]
        Name { given: String } = EINVAL,
        #[error("{name} is given twice")]
        Twice { name: &'static str } = EINVAL,
        #[error("{name}={given}: expected {expected}")]
        Value { name: &'static str, given: String, expected: &'static str } = EINVAL,
        #[error("{name} requires {needs}: add {needs}=1%, for example")]
        Needs { name: &'static str, needs: &'static str } = EINVAL,
    }
}

const SHARE: &str = "a share of the packets from 0% to 100%, as in 1% or 0.05%";
const TIME: &str = "a time of at most 60 s with its unit (ns, us, ms, s), as in 50us";
const RATE: &str = "bits a second with their unit (k, M, G), as in 100M";
const BURST: &str = "a number of packets from 1 to 65535";
const SEED: &str = "a whole number below 2^64";

impl FromStr for FaultSpec {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut spec = Self::default();
        let mut seen: Vec<&'static str> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let form = || FaultError::Form { given: part.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            let name = spec.set(name.trim(), value.trim())?;
            if seen.contains(&name) {
                return Err(FaultError::Twice { name });
            }
            seen.push(name);
        }
        for (name, needs) in [("burst", "loss"), ("late", "reorder")] {
            if seen.contains(&name) && !seen.contains(&needs) {
                return Err(FaultError::Needs { name, needs });
            }
        }
        Ok(spec)
    }
}

impl FaultSpec {
    /// Sets one fault and returns its name.
    fn set(&mut self, name: &str, value: &str) -> Result<&'static str, FaultError> {
        let link = &mut self.link;
        let wrong =
            |name, expected| move || FaultError::Value { name, given: value.to_owned(), expected };
        if let Some((name, field)) = SHARES.iter().find(|(known, _)| *known == name) {
            *field(link) = share(value).ok_or_else(wrong(name, SHARE))?;
            return Ok(name);
        }
        if let Some((name, field)) = TIMES.iter().find(|(known, _)| *known == name) {
            *field(link) = time_ns(value).ok_or_else(wrong(name, TIME))?;
            return Ok(name);
        }
        match name {
            "burst" => {
                let burst = value.parse::<u16>().ok().filter(|burst| *burst > 0);
                link.loss_burst_max = burst.ok_or_else(wrong("burst", BURST))?.into();
                Ok("burst")
            }
            "rate" => {
                let rate = with_unit(value, &RATE_UNITS).filter(|rate| *rate > 0);
                link.bandwidth_bps = Some(rate.ok_or_else(wrong("rate", RATE))?);
                Ok("rate")
            }
            "seed" => {
                self.seed = Some(value.parse().map_err(|_| wrong("seed", SEED)())?);
                Ok("seed")
            }
            _ => Err(FaultError::Name { given: name.to_owned() }),
        }
    }
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a percentage such as `0.05%`.
fn share(text: &str) -> Option<Probability> {
    let number = text.strip_suffix('%')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(fraction) || fraction.len() > 4 {
        return None;
    }
    let percent: u32 = whole.parse().ok().filter(|percent| *percent <= 100)?;
    let parts: u32 = format!("{fraction:0<4}").parse().ok()?;
    let ppm = percent * PPM_PER_PERCENT + parts;
    (ppm <= Probability::ALWAYS.as_ppm()).then(|| Probability::from_ppm(ppm))
}

fn time_ns(text: &str) -> Option<u64> {
    with_unit(text, &TIME_UNITS).filter(|ns| *ns <= TIME_MAX_NS)
}

/// Parses a whole number with a unit. Returns the value in the smallest unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats a number with the largest unit that leaves the number whole.
fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().find(|(_, factor)| value > 0 && value.is_multiple_of(*factor));
    match fits.or(units.last()) {
        Some((unit, factor)) => format!("{}{unit}", value / factor),
        None => value.to_string(),
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut link, mut usual) = (self.link.clone(), Self::default().link);
        let mut parts = Vec::new();
        for (name, field) in SHARES {
            let ppm = field(&mut link).as_ppm();
            if ppm > 0 {
                let number = format!("{}.{:04}", ppm / PPM_PER_PERCENT, ppm % PPM_PER_PERCENT);
                let number = number.trim_end_matches('0').trim_end_matches('.');
                parts.push(format!("{name}={number}%"));
            }
        }
        if link.loss != Probability::NEVER && link.loss_burst_max > 1 {
            parts.push(format!("burst={}", link.loss_burst_max));
        }
        let has_late = link.reorder != Probability::NEVER;
        for (name, field) in TIMES.into_iter().filter(|(name, _)| *name != "late" || has_late) {
            let ns = *field(&mut link);
            if ns != *field(&mut usual) {
                parts.push(format!("{name}={}", in_units(ns, &TIME_UNITS)));
            }
        }
        if let Some(rate) = link.bandwidth_bps {
            parts.push(format!("rate={}", in_units(rate, &RATE_UNITS)));
        }
        if let Some(seed) = self.seed {
            parts.push(format!("seed={seed}"));
        }
        f.write_str(&parts.join(","))
    }
}
