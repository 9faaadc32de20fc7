//! `cargo xtask ENTRY`: the project's tasks. What CI runs, a person runs by the same name.
//!
//! Each entry is a function in [`entries`] that starts ordinary commands ([`step`]); the commands
//! are shown before they run, so that any of them can be repeated by hand. Builds with other
//! compiler flags have target folders of their own (`target/loom`, `target/asan`, `target/fuzz`),
//! so that none throws away what another has built. The others name the whole workspace and one
//! target in it, not its package: for a package alone, cargo takes its dependencies with fewer
//! features, and builds most of them a second time.
//!
//! Every run ends with a line `N passed, N failed` ([`tally`]): the tests that ran, and one for
//! each step that is not a test. The exit code is 0 only if nothing failed.

mod entries;
mod machine;
mod step;
mod tally;

use std::process::ExitCode;

use entries::{ENTRIES, Entry};
use step::Failure;
use tally::Tally;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "--help".to_owned());
    let rest: Vec<String> = arguments.collect();
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else {
        eprintln!("xtask: no entry {name:?}\n\n{}", help());
        return ExitCode::from(2);
    };
    let mut tally = Tally::default();
    let result = (entry.run)(&rest, &mut tally);
    if let Err(failure) = &result {
        eprintln!("\nxtask: {}: {failure}", entry.name);
    }
    if let Err(Failure::Usage(_)) = result {
        return ExitCode::from(2);
    }
    println!("{tally}");
    if result.is_ok() && tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A line per entry.
fn help() -> String {
    let mut text = "usage: cargo xtask ENTRY [ARGUMENT]\n\n".to_owned();
    for Entry { name, argument, says, .. } in ENTRIES {
        text.push_str(&format!("  {:<20} {says}\n", format!("{name} {argument}")));
    }
    text
}
