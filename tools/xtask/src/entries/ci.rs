//! Everything, in the order in which it fails soonest; in the end two lanes side by side.
//!
//! The lane of Debian's programs and of kernels waits more than it computes: a guest has one
//! processor, and a program that is to start is given time. The lane of other compiler flags only
//! computes, in target folders of its own; it gets what the first leaves over.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::{ENTRIES, none};
use crate::step::{Failure, LAST_LINES, target_folder};
use crate::tally::Tally;

/// An entry's name, with its arguments.
type Call = (&'static str, &'static [&'static str]);

/// What goes first, alone.
const FIRST: [Call; 7] = [
    ("fmt", &[]),
    ("clippy", &[]),
    ("doc", &[]),
    ("test", &[]),
    ("sim", &[]),
    ("allocations", &[]),
    ("budget", &[]),
];
/// Then these.
const WAITING: [Call; 3] = [("programs", &[]), ("namespace", &[]), ("kernel", &[])];
/// Beside them, of the lowest priority, since nothing of it measures time.
const COMPUTING: [Call; 3] = [("loom", &[]), ("asan", &[]), ("fuzz", &["20"])];

/// cargo's. What makes a second build quicker makes the first slower by a tenth, and on a fresh
/// clone there is no second.
const INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// How an entry ended.
struct Outcome {
    name: &'static str,
    seconds: f64,
    counted: Tally,
    failure: Option<Failure>,
}

/// Runs them; each lane stops at its first that fails. Ends with the time that each took.
pub fn ci(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "ci")?;
    if std::env::var_os(INCREMENTAL).is_none() {
        return Err(once_more_without_incremental());
    }
    let mut outcomes = here(&FIRST);
    if outcomes.iter().all(|outcome| outcome.failure.is_none()) {
        let has_failed = AtomicBool::new(false);
        let (waited, computed) = thread::scope(|scope| {
            let computing = scope.spawn(|| beside(&COMPUTING, &has_failed));
            let waited = here(&WAITING);
            has_failed
                .store(waited.iter().any(|outcome| outcome.failure.is_some()), Ordering::Relaxed);
            (waited, computing.join())
        });
        outcomes.extend(waited);
        // What was said there comes in one piece.
        for (outcome, said) in computed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            println!("\n== {}\n{said}", outcome.name);
            outcomes.push(outcome);
        }
    }
    // Much was said since, by other entries: who reads the end of it only wants to see what failed.
    for Outcome { name, failure, .. } in &outcomes {
        if let Some(Failure::Step { last, .. }) = failure {
            println!("\n== the end of {name}\n{}", last.join("\n"));
        }
    }
    println!();
    for Outcome { name, seconds, counted, failure } in &outcomes {
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("{name:<11} {verdict:<6} {seconds:>7.1} s  {} passed", counted.passed);
        tally.add(*counted);
    }
    let all = FIRST.iter().chain(&WAITING).chain(&COMPUTING);
    let left: Vec<&str> = all
        .map(|(name, _)| *name)
        .filter(|name| outcomes.iter().all(|outcome| outcome.name != *name))
        .collect();
    if !left.is_empty() {
        println!("Not run: {}", left.join(", "));
    }
    outcomes.into_iter().find_map(|outcome| outcome.failure).map_or(Ok(()), Err)
}

/// Becomes this command again, for which nothing is built incrementally; returns only if that
/// fails.
fn once_more_without_incremental() -> Failure {
    let command = format!("{INCREMENTAL}=0 cargo xtask ci");
    let error = match std::env::current_exe() {
        Ok(this) => Command::new(this).arg("ci").env(INCREMENTAL, "0").exec(),
        Err(error) => error,
    };
    Failure::Start { command, error }
}

/// Runs them in this process, up to the first that fails.
fn here(calls: &[Call]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for &(name, arguments) in calls {
        let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else { continue };
        println!("\n== {name}");
        let arguments: Vec<String> =
            arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (start, mut counted) = (Instant::now(), Tally::default());
        let failure = (entry.run)(&arguments, &mut counted).err();
        outcomes.push(Outcome::new(name, start, counted, failure));
        if outcomes.last().is_some_and(|outcome| outcome.failure.is_some()) {
            break;
        }
    }
    outcomes
}

/// Runs each in a process of its own, up to the first that fails or until others have; with what it
/// said.
fn beside(calls: &[Call], has_failed: &AtomicBool) -> Vec<(Outcome, String)> {
    let mut outcomes = Vec::new();
    for &(name, arguments) in calls {
        if has_failed.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        let command = format!("cargo xtask {name} {}", arguments.join(" "));
        let (said, failure) = match apart(name, arguments) {
            Ok((said, status)) if status.success() => (said, None),
            Ok((said, status)) => {
                let from = said.lines().count().saturating_sub(LAST_LINES);
                let last = said.lines().skip(from).map(str::to_owned).collect();
                (said, Some(Failure::Step { command, status, last }))
            }
            Err(error) => (String::new(), Some(Failure::Start { command, error })),
        };
        let counted = said.lines().rev().find_map(Tally::of_total).unwrap_or_default();
        outcomes.push((Outcome::new(name, start, counted, failure), said));
        if outcomes.last().is_some_and(|(outcome, _)| outcome.failure.is_some()) {
            break;
        }
    }
    outcomes
}

/// What an entry says in a process of its own, and how that ends.
fn apart(name: &str, arguments: &[&str]) -> io::Result<(String, ExitStatus)> {
    fs::create_dir_all(target_folder())?;
    let log = target_folder().join(format!("ci-{name}.log"));
    let output = File::create(&log)?;
    let mut command = Command::new("nice");
    // Not by its path: building the tests has put another in its place.
    let this = format!("/proc/{}/exe", std::process::id());
    command.args(["-n", "19", &this, name]).args(arguments);
    let status =
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output).status()?;
    Ok((String::from_utf8_lossy(&fs::read(&log)?).into_owned(), status))
}

impl Outcome {
    fn new(
        name: &'static str,
        start: Instant,
        mut counted: Tally,
        failure: Option<Failure>,
    ) -> Self {
        if failure.is_some() && counted.failed == 0 {
            counted.failed = 1;
        }
        Self { name, seconds: start.elapsed().as_secs_f64(), counted, failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_entry() {
        for (name, _) in FIRST.iter().chain(&WAITING).chain(&COMPUTING) {
            assert!(ENTRIES.iter().any(|entry| entry.name == *name), "{name}");
        }
    }
}
