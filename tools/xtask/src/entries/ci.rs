//! Everything, in the order in which it fails soonest.

use std::time::Instant;

use super::{ENTRIES, none};
use crate::step::Failure;
use crate::tally::Tally;

/// The entries that CI runs, with their arguments.
const ORDER: [(&str, &[&str]); 12] = [
    ("fmt", &[]),
    ("clippy", &[]),
    ("doc", &[]),
    ("test", &[]),
    ("sim", &[]),
    ("allocations", &[]),
    ("loom", &[]),
    ("asan", &[]),
    ("fuzz", &["20"]),
    ("programs", &[]),
    ("namespace", &[]),
    ("kernel", &[]),
];

/// Runs them; stops at the first that fails. Ends with the time that each took.
pub fn ci(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "ci")?;
    let mut report = String::from("\n");
    let mut result = Ok(());
    for (name, arguments) in ORDER {
        let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else { continue };
        println!("\n== {name}");
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (start, before) = (Instant::now(), *tally);
        result = (entry.run)(&arguments, tally);
        if result.is_err() && tally.failed == before.failed {
            tally.failed += 1;
        }
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        let seconds = start.elapsed().as_secs_f64();
        let passed = tally.passed - before.passed;
        report.push_str(&format!("{name:<8} {verdict:<6} {seconds:>7.1} s  {passed} passed\n"));
        if result.is_err() {
            report.push_str("The entries after it were not run.\n");
            break;
        }
    }
    print!("{report}");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_entry() {
        for (name, _) in ORDER {
            assert!(ENTRIES.iter().any(|entry| entry.name == name), "{name}");
        }
    }
}
