//! `urxe`: the command-line interface, as a library of the binary, the manual and the fuzz targets.
//!
//! Each subcommand is a file or folder under [`cmd`]. Results are written to standard output, as
//! text or, with `--json`, as JSON. Messages are written to standard error and say how to solve the
//! problem. If the reader of standard output stops (`urxe decode … | head`), the command succeeds.
//!
//! Under the name of another command, such as `rdma`, the binary is that command
//! ([`cmd::applets`]).
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | failure; the reason is on standard error |
//! | 2 | wrong usage |
#![forbid(unsafe_code)]
// The functions of `output` escape text of other processes.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod capture;
mod cmd;
mod output;
mod traffic;
#[doc(hidden)]
pub mod untrusted;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

#[doc(hidden)]
pub use cmd::completions::Shell;

use cmd::{Cli, Outcome};

/// Returns the definition of the command line, for the manual and the completions.
#[doc(hidden)]
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = cmd::applets::called() {
        return code;
    }
    let cli = Cli::parse();
    if let Err(error) = output::start_logging(cli.command.log_filter()) {
        output::report(&error);
        return ExitCode::from(2);
    }
    match cli.command.run() {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&error);
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}
