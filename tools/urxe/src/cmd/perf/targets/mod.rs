//! `urxe perf --targets`: measures the project's targets row by row, and reports whether each
//! holds.
//!
//! Every row is a separate comparison between new processes on free loopback addresses, so a failed
//! row does not affect the others.

mod measure;
mod row;

use std::io::Write;

use serde::Serialize;

use super::options::Args;
use crate::cmd::{CmdError, Outcome};
use crate::output;

pub use measure::names;
use row::Row;

#[derive(Debug, Serialize)]
struct Verdict<'a> {
    /// Rounds of each figure.
    rounds: u32,
    /// Whether every row holds.
    holds: bool,
    rows: &'a [Row],
}

/// Measures all rows and prints them.
///
/// # Errors
/// The output is closed.
pub fn run(args: &Args) -> Result<Outcome, CmdError> {
    let rows = measure::all(args.round(), args.rounds, args.row.as_deref());
    let holds = rows.iter().all(Row::holds);
    let verdict = Verdict { rounds: args.rounds, holds, rows: &rows };
    output::print(args.json, &verdict, |out| print(&rows, args.rounds, out))?;
    Ok(if holds { Outcome::Done } else { Outcome::Failed })
}

fn print(rows: &[Row], rounds: u32, out: &mut dyn Write) -> Result<(), CmdError> {
    let verdict = |holds| if holds { "holds" } else { "FAILS" };
    for row in rows {
        let head = format!("{}: {}", row.what, verdict(row.holds()));
        writeln!(out, "{}", output::wrap("", "  ", &head))?;
        let checks = row.checks.iter().map(|check| {
            let (is, bound, holds) = (check.shown(), check.bound, verdict(check.holds()));
            format!("{} against {}: {is}, {bound}; {holds}", check.figure, check.against)
        });
        for line in row.trouble.iter().cloned().chain(checks) {
            writeln!(out, "{}", output::wrap("  ", "    ", &line))?;
        }
    }
    let held = rows.iter().filter(|row| row.holds()).count();
    let summary = format!(
        "{held} of {} rows hold; medians of {rounds} rounds, alternating with the floors.",
        rows.len()
    );
    writeln!(out, "{}", output::wrap("", "", &summary))?;
    Ok(())
}
