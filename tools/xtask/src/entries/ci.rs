//! Runs all tasks of CI: first the quickest checks, then two sequences in parallel.
//!
//! The first sequence runs the timed tests at normal priority: tests, Debian's programs and
//! kernels. These wait more than they compute, because a guest has one processor and a program
//! needs time to start. The second sequence runs the computing tasks at the lowest priority. These
//! tasks measure no time. Those with separate target folders run first, beside the build of the
//! tests. The other ones follow, because cargo locks the tests' folder during a build.

use std::fs::{self, File};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Error, Result, bail};

use super::{none, task};
use crate::run::{Runner, Tally, root, target_folder};
use crate::structure::need_typos;

/// An entry's name, with its arguments.
type Call = (&'static str, &'static [&'static str]);

/// The tasks that run first, before the parallel part.
const FIRST: [Call; 4] = [("fmt", &[]), ("structure", &[]), ("book", &[]), ("clippy", &[])];
/// The lane of tests in time.
const TIMED: [Call; 5] =
    [("test", &[]), ("programs", &[]), ("recipes", &["--ci"]), ("namespace", &[]), ("kernel", &[])];
/// The computing lane.
const COMPUTING: [Call; 8] = [
    ("fuzz", &["6"]),
    ("asan", &[]),
    ("arm", &["--ci"]),
    ("loom", &[]),
    ("allocations", &[]),
    ("budget", &[]),
    ("sim", &[]),
    ("doc", &[]),
];

/// How an entry ended.
pub struct Outcome {
    name: &'static str,
    seconds: f64,
    tally: Tally,
    failure: Option<Error>,
}

/// Runs them; each lane stops at its first that fails. Ends with the time that each took.
pub fn ci(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    need_typos(runner)?;
    let has_failed = AtomicBool::new(false);
    let ours = |_: &str| Ok(Runner { incremental: false, ..Runner::default() });
    let mut outcomes = lane(&FIRST, ours, &has_failed);
    if !has_failed.load(Ordering::Relaxed) {
        let (timed, computed) = thread::scope(|scope| {
            let computing = scope.spawn(|| lane(&COMPUTING, logged, &has_failed));
            (lane(&TIMED, ours, &has_failed), computing.join())
        });
        outcomes.extend(timed);
        // The output of the computing tasks is printed at the end, one task after the other.
        for outcome in computed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            println!("{}", fs::read_to_string(log(outcome.name))?);
            outcomes.push(outcome);
        }
    }
    // A full disk fails entries in ways that do not name it.
    runner.run(Command::new("df").arg("-h").arg(root()))?;
    let all = FIRST.iter().chain(&TIMED).chain(&COMPUTING).map(|(name, _)| *name);
    finish(outcomes, all, runner)
}

/// Prints how the entries ended, the ends of those that failed first, and counts their tests.
pub fn finish(
    outcomes: Vec<Outcome>,
    all: impl Iterator<Item = &'static str>,
    runner: &mut Runner,
) -> Result<()> {
    for Outcome { name, failure, .. } in &outcomes {
        if let Some(failure) = failure {
            println!("\n== the end of {name}\n{failure:#}");
        }
    }
    println!("\n| task | result | seconds | tests passed |\n|---|---|---|---|");
    for Outcome { name, seconds, tally, failure } in &outcomes {
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("| {name} | {verdict} | {seconds:.0} | {} |", tally.passed);
        runner.tally.add(*tally);
    }
    let left: Vec<_> =
        all.filter(|name| outcomes.iter().all(|outcome| outcome.name != *name)).collect();
    if !left.is_empty() {
        println!("Not run: {}", left.join(", "));
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some());
    let failed: Vec<_> = failed.map(|outcome| outcome.name).collect();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Runs entries up to the first that fails here or in another lane.
fn lane(
    calls: &[Call],
    runner: impl Fn(&str) -> io::Result<Runner>,
    has_failed: &AtomicBool,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for &(name, arguments) in calls {
        if has_failed.load(Ordering::Relaxed) {
            break;
        }
        let outcome = run(name, arguments, runner(name));
        has_failed.fetch_or(outcome.failure.is_some(), Ordering::Relaxed);
        outcomes.push(outcome);
    }
    outcomes
}

/// Runs one entry and takes its time.
pub fn run(name: &'static str, arguments: &[&str], runner: io::Result<Runner>) -> Outcome {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let (start, mut tally) = (Instant::now(), Tally::default());
    let result = runner.map_err(Error::from).and_then(|mut runner| {
        writeln!(runner.output, "\n== {name}")?;
        let result = task(name)?(&arguments, &mut runner);
        tally = runner.tally;
        result
    });
    if result.is_err() && tally.failed == 0 {
        tally.failed = 1;
    }
    Outcome { name, seconds: start.elapsed().as_secs_f64(), tally, failure: result.err() }
}

/// Returns a runner whose output goes to a file.
fn logged(name: &str) -> io::Result<Runner> {
    fs::create_dir_all(target_folder())?;
    let output = Box::new(File::create(log(name))?);
    Ok(Runner { output, yields: true, incremental: false, ..Runner::default() })
}

fn log(name: &str) -> std::path::PathBuf {
    target_folder().join(format!("ci-{name}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_entry() {
        for (name, _) in FIRST.iter().chain(&TIMED).chain(&COMPUTING) {
            assert!(task(name).is_ok(), "{name}");
        }
    }
}
