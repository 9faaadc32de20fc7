//! `cargo xtask TASK`: the project's tasks. CI uses the same tasks as developers.
//!
//! Each task is a function in [`entries`] that runs ordinary commands ([`run`]). Each command is
//! printed first, so that it can be repeated by hand. Builds with other compiler flags have
//! separate target folders (`target/arm`, `target/asan`, `target/fuzz`), so that they do not
//! invalidate each other. The other builds select targets of the workspace's default members.
//! Selecting one package, or xtask as well, would change dependencies, and cargo would build most
//! of them again.
//!
//! Every run ends with the line `N passed, N failed` ([`run::Tally`]). It counts the tests, and one
//! for each command that is not a test. The exit code is 0 if nothing failed.

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
