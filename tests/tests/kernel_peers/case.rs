//! A test case in the testbed, and the report of its failure.

use std::{fmt::Write as _, fs, sync::Arc};

use libtest_mimic::{Failed, Trial};
use urxe_tests::kernel::{Error, Finished, Guest, Series, Testbed, stalls};

/// Why a test failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A command or the harness failed.
    #[error(transparent)]
    Harness(#[from] Error),
    /// Counters moved although nothing was lost.
    #[error("faults on a link without faults: {counters}")]
    Faults { counters: String },
    /// A kernel sent again although nothing was lost, and no other fault happened.
    #[error("a kernel sent again on a link without faults: {counters}")]
    SentAgain { counters: String },
    /// Packets did not arrive, or arrived with a wrong ICRC.
    #[error("{sent} packets sent, {received} received ({counts})")]
    Lost { sent: u64, received: u64, counts: String },
    /// An output lacks the expected text.
    #[error("`{command}` did not print {wanted}; output:\n{output}")]
    MissingOutput { command: String, output: String, wanted: String },
    /// A pair of programs failed.
    #[error("{0}")]
    Program(String),
    /// Some of several pairs failed.
    #[error("{failed} of {of} pairs failed:\n{what}")]
    Pairs { failed: usize, of: usize, what: String },
}

impl Failure {
    pub fn missing_output(
        command: impl Into<String>,
        output: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        let (command, output, wanted) = (command.into(), output.into(), wanted.into());
        Self::MissingOutput { command, output, wanted }
    }

    /// Fails if some of `of` pairs have failed.
    pub fn of_pairs(failed: &[String], of: usize) -> Result<(), Self> {
        if failed.is_empty() {
            return Ok(());
        }
        Err(Self::Pairs { failed: failed.len(), of, what: failed.join("\n") })
    }
}

/// Fails if an output lacks the expected text.
pub fn must_contain(command: &str, output: &str, wanted: &str) -> Result<(), Failure> {
    if output.contains(wanted) {
        Ok(())
    } else {
        Err(Failure::missing_output(command, output, wanted))
    }
}

/// Returns the output of a command, which must have succeeded and printed all of these texts.
pub fn output_with(finished: Finished, wanted: &[&str]) -> Result<String, Failure> {
    let command = finished.command.clone();
    let output = finished.ok()?;
    wanted.iter().try_for_each(|wanted| must_contain(&command, &output, wanted))?;
    Ok(output)
}

type Body = dyn Fn(&Testbed) -> Result<(), Failure> + Send;
/// The body of a test with one guest.
pub type GuestBody = fn(&Testbed, &Guest) -> Result<(), Failure>;

/// A named test.
pub struct Case {
    name: String,
    body: Box<Body>,
    /// Whether the test is skipped unless requested.
    is_long: bool,
}

impl Case {
    pub fn new(
        name: impl Into<String>,
        body: impl Fn(&Testbed) -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(body), is_long: false }
    }

    /// Creates a test with the guest of a series.
    pub fn with_guest(name: String, series: Series, body: GuestBody) -> Self {
        Self::new(name, move |testbed| body(testbed, testbed.guest(series)))
    }

    /// Makes the test one that is skipped unless requested.
    pub fn long(self) -> Self {
        Self { is_long: true, ..self }
    }

    /// Converts the test for libtest-mimic. Without a testbed, the test can only be listed.
    pub fn trial(self, testbed: Option<Arc<Testbed>>) -> Trial {
        let is_long = self.is_long;
        let trial = Trial::test(self.name.clone(), move || {
            let testbed = testbed.ok_or_else(|| Failed::from("no testbed"))?;
            self.run(&testbed)
        });
        trial.with_ignored_flag(is_long)
    }

    /// Runs the test. If a guest died or was corrupted meanwhile, the test runs once more with a
    /// new guest. Emulated kernels sometimes panic on their own, but a kernel that panics because
    /// of our packets does so again.
    fn run(&self, testbed: &Testbed) -> Result<(), Failed> {
        let Err(text) = self.attempt(testbed) else { return Ok(()) };
        let dead = testbed.reboot_failed().map_err(|error| format!("{text}\n{error}"))?;
        if dead.is_empty() {
            return Err(text.into());
        }
        eprintln!("{}: {text}\n{}\nIt is run once more.", self.name, dead.join("\n"));
        let Err(text) = self.attempt(testbed) else { return Ok(()) };
        let dead = testbed.reboot_failed().map_err(|error| format!("{text}\n{error}"))?;
        Err(format!("{text}\n{}", dead.join("\n")).into())
    }

    /// Runs the test once. A failure includes the guests' logs.
    fn attempt(&self, testbed: &Testbed) -> Result<(), String> {
        let capture = testbed.capture(&self.name).map_err(|error| error.to_string())?;
        let Err(failure) = (self.body)(testbed) else {
            capture.discard();
            return Ok(());
        };
        let file = capture.keep();
        let mut text = format!("{failure}\npackets: {}\n", file.display());
        if let Failure::SentAgain { .. } = failure {
            let kernels: Vec<_> =
                testbed.guests().iter().flat_map(|guest| [guest.v4(), guest.v6()]).collect();
            match stalls::check(&file, &kernels) {
                Ok(stalls) if stalls > 0 => {
                    eprintln!("{}: {failure}, after {stalls} stalls of its own", self.name);
                    // The file served only for this check.
                    let _ = fs::remove_file(file);
                    return Ok(());
                }
                Ok(_) => text.push_str("the capture has no retransmission\n"),
                // Writing to a String cannot fail.
                Err(other) => _ = writeln!(text, "no stall of the kernel: {other}"),
            }
        }
        for guest in testbed.guests() {
            // Writing to a String cannot fail.
            let _ = match guest.dmesg() {
                Ok(log) => {
                    let last: Vec<_> = log.lines().rev().take(8).collect();
                    writeln!(
                        text,
                        "{}, dmesg (newest first):\n  {}",
                        guest.name(),
                        last.join("\n  ")
                    )
                }
                Err(error) => writeln!(text, "{}: {error}", guest.name()),
            };
        }
        Err(text)
    }
}
