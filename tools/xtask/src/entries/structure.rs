//! Checks of the structure that the compiler does not make.

use anyhow::{Result, bail};

use crate::run::Runner;
use crate::structure::{crates, lines, modules, prose, small};

/// A check's name, and the function that returns a line for each fault.
type Check = (&'static str, fn() -> Result<Vec<String>>);

const CHECKS: [Check; 5] = [
    ("crates", crates::check),
    ("modules", modules::check),
    ("lines", lines::check),
    ("small", small::check),
    ("prose", prose::check),
];

/// Runs all checks, or the named one; each counts as a test.
pub fn structure(arguments: &[String], runner: &mut Runner) -> Result<()> {
    if arguments.iter().any(|name| CHECKS.iter().all(|(check, _)| check != name)) {
        bail!("expected {}, or nothing", CHECKS.map(|(name, _)| name).join(", "));
    }
    for (name, check) in CHECKS {
        if !arguments.is_empty() && arguments.iter().all(|argument| argument != name) {
            continue;
        }
        let faults = check()?;
        for fault in &faults {
            writeln!(runner.output, "{fault}")?;
        }
        writeln!(runner.output, "structure {name}: {} faults", faults.len())?;
        match faults.is_empty() {
            true => runner.tally.passed += 1,
            false => runner.tally.failed += 1,
        }
    }
    if runner.tally.failed > 0 {
        bail!("ARCHITECTURE.md and CONTRIBUTING.md have the rules")
    }
    Ok(())
}
