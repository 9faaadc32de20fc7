//! How many tests passed and failed, read from what test programs print.
//!
//! | who prints | the line |
//! |---|---|
//! | libtest, libtest-mimic | `test result: ok. 29 passed; 0 failed; 0 ignored; …` |
//! | nextest | `Summary [   0.123s] 39 tests run: 38 passed (1 slow), 1 failed, 0 skipped` |

use std::fmt;

#[cfg(test)]
mod tests;

/// What passed and what failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: u64,
    /// How many did not.
    pub failed: u64,
}

impl Tally {
    /// Counts what a line of output says, if it is a summary.
    pub fn read(&mut self, line: &str) {
        let line = without_colours(line);
        let Some(counts) = summary(&line) else { return };
        let mut words =
            counts.split([' ', ',', ';', '(', ')']).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let (Ok(number), Some(what)) = (word.parse::<u64>(), words.peek()) else { continue };
            match *what {
                "passed" => self.passed += number,
                // nextest: "1 timed out", "1 exec failed"
                "failed" | "timed" | "exec" => self.failed += number,
                _ => {}
            }
        }
    }

    /// What another run's last line says, which is a tally's own text.
    pub fn of_total(line: &str) -> Option<Self> {
        let (passed, failed) = line.trim().strip_suffix(" failed")?.split_once(" passed, ")?;
        Some(Self { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    }

    /// Adds what another tally has counted.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Whether anything was counted.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The part of a summary line that counts.
fn summary(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(result) = line.strip_prefix("test result: ") {
        return result.split_once(". ").map(|(_, counts)| counts);
    }
    let (_, counts) = line.strip_prefix("Summary [")?.split_once("run: ")?;
    Some(counts)
}

/// The line without the terminal's escape sequences.
fn without_colours(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, sequence)) = rest.split_once('\x1b') {
        text.push_str(before);
        rest =
            sequence.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &sequence[end + 1..]);
    }
    text.push_str(rest);
    text
}
