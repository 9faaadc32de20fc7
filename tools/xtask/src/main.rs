//! `cargo xtask ENTRY`: the project's tasks. What CI runs, a person runs by the same name.
//!
//! Each entry is a function in [`entries`] that starts ordinary commands ([`run`]); the commands
//! are shown before they run, so that any of them can be repeated by hand. Builds with other
//! compiler flags have target folders of their own (`target/loom`, `target/asan`, `target/fuzz`),
//! so that none throws away what another has built. The others name the whole workspace and one
//! target in it, not its package: for a package alone, cargo takes its dependencies with fewer
//! features, and builds most of them a second time.
//!
//! Every run ends with a line `N passed, N failed` ([`run::Tally`]): the tests that ran, and one
//! for each command that is not a test. The exit code is 0 only if nothing failed.

mod entries;
mod machine;
mod run;
mod structure;

use std::process::ExitCode;

use entries::{HELP, task};
use run::{Runner, root};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "--help".to_owned());
    let rest: Vec<String> = arguments.collect();
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let task = match task(&name) {
        Ok(task) => task,
        Err(error) => {
            eprintln!("xtask: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut runner = Runner::default();
    let result = std::env::set_current_dir(root()).map_err(Into::into);
    let result = result.and_then(|()| task(&rest, &mut runner));
    if let Err(error) = &result {
        eprintln!("\nxtask: {name}: {error:#}");
        runner.tally.failed = runner.tally.failed.max(1);
    }
    println!("{}", runner.tally);
    if result.is_ok() && runner.tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
