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
    let mut out = output::stdout();
    if args.json {
        output::json(&mut out, &Verdict { rounds: args.rounds, holds, rows: &rows })?;
    } else {
        print(&rows, args.rounds, &mut out)?;
    }
    out.flush()?;
    Ok(if holds { Outcome::Done } else { Outcome::Failed })
}

fn print(rows: &[Row], rounds: u32, out: &mut dyn Write) -> Result<(), CmdError> {
    let mut shown = output::table(&["what", "figure", "compared with", "is", "target", "holds"], 6);
    for row in rows {
        let mut what = row.what.as_str();
        if let Some(trouble) = &row.trouble {
            shown.add_row([what, "", trouble, "", "", "NO"]);
            continue;
        }
        for check in &row.checks {
            let holds = if check.holds() { "yes" } else { "NO" };
            let (is, target) = (check.shown(), check.bound.to_string());
            shown.add_row([what, &check.figure, &check.against, &is, &target, holds]);
            what = "";
        }
    }
    writeln!(out, "{shown}")?;
    let held = rows.iter().filter(|row| row.holds()).count();
    writeln!(
        out,
        "{held} of {} rows hold; medians of {rounds} rounds, each in turn with its floor.",
        rows.len()
    )?;
    Ok(())
}
