//! Formatting, lints, documentation.

use super::none;
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// Checks the formatting, also of the fuzz targets, which are a workspace of their own.
pub fn fmt(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "fmt")?;
    Step::cargo(&["fmt", "--all", "--check"]).run(tally)?;
    Step::cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]).run(tally)
}

/// Lints libraries, binaries, tests, benches and examples, with every feature.
pub fn clippy(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "clippy")?;
    Step::cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
        .run(tally)
}

/// Builds the documentation.
pub fn doc(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "doc")?;
    Step::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run(tally)
}
