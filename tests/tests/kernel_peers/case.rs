//! One test: what it does in the lab, and what is told when it fails.

use std::{fmt::Write as _, sync::Arc};

use libtest_mimic::{Failed, Trial};
use urxe_tests::kernel::{Error, Guest, Lab};

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A command, or the harness.
    #[error(transparent)]
    Harness(#[from] Error),
    /// The kernel's counters moved though nothing was lost.
    #[error("{guest} counted trouble on a clean link: {counters}")]
    Trouble { guest: String, counters: String },
    /// An output without what it should contain.
    #[error("`{command}` said\n{output}\nbut not: {wanted}")]
    Unsaid { command: String, output: String, wanted: String },
}

/// An emulated kernel on a busy machine may be late with an acknowledgement (urxe asks again after 16 ms), which its
/// counters cannot tell from a lost packet. So a clean link must show one run without any retry among so many; a packet
/// that the kernel refuses, it refuses each time.
const ATTEMPTS: u32 = 3;

type Body = dyn Fn(&Lab) -> Result<(), Failure> + Send;

/// A named test.
pub struct Case {
    name: String,
    link: Link,
    body: Box<Body>,
}

/// What the link does to packets during a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Nothing: no counter of the kernels may tell of a retry.
    Clean,
    /// The test brings faults, provokes errors, or looks at the counters of each of its runs.
    Troubled,
}

impl Case {
    pub fn new(
        name: impl Into<String>,
        link: Link,
        body: impl Fn(&Lab) -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), link, body: Box::new(body) }
    }

    /// For libtest-mimic; without a lab it can be listed only.
    pub fn trial(self, lab: Option<Arc<Lab>>) -> Trial {
        Trial::test(self.name.clone(), move || {
            let lab = lab.ok_or_else(|| Failed::from("no lab"))?;
            self.run(&lab)
        })
    }

    fn run(&self, lab: &Lab) -> Result<(), Failed> {
        let capture = lab.capture(&self.name).map_err(|error| Failed::from(error.to_string()))?;
        let outcome = match self.link {
            Link::Clean => without_retry(lab, || (self.body)(lab)),
            Link::Troubled => (self.body)(lab),
        };
        let Err(failure) = outcome else {
            capture.discard();
            return Ok(());
        };
        let mut text = format!("{failure}\npackets: {}\n", capture.keep().display());
        for guest in lab.guests() {
            let log = guest.dmesg().unwrap_or_else(|error| error.to_string());
            let last: Vec<_> = log.lines().rev().take(8).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}, dmesg (newest first):\n  {}", guest.name(), last.join("\n  "));
        }
        Err(text.into())
    }
}

/// Runs `body`, as often as [`ATTEMPTS`] says, until it passes without any of the kernels counting a retry.
pub fn without_retry(lab: &Lab, body: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut outcome = attempt(lab, &body);
    for _ in 1..ATTEMPTS {
        if !matches!(outcome, Err(Failure::Trouble { .. })) {
            break;
        }
        outcome = attempt(lab, &body);
    }
    outcome
}

fn attempt(lab: &Lab, body: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    let before = lab.guests().iter().map(Guest::counters).collect::<Result<Vec<_>, _>>()?;
    body()?;
    for (guest, before) in lab.guests().iter().zip(&before) {
        let trouble = guest.counters()?.since(before).trouble();
        if !trouble.is_empty() {
            return Err(Failure::Trouble { guest: guest.name(), counters: trouble.to_string() });
        }
    }
    Ok(())
}
