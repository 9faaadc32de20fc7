//! Formatting, lints, documentation.

use super::none;
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// What is built only on demand, but for the fuzz targets, which need a C++ compiler.
const FEATURES: &str = "urxe/serde,urxe-tests/kernel-peers,urxe-tests/programs";

/// Checks the formatting.
pub fn fmt(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "fmt")?;
    Step::cargo(&["fmt", "--all", "--check"]).run(tally)
}

/// Lints libraries, binaries, tests, benches and examples.
pub fn clippy(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "clippy")?;
    Step::cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        FEATURES,
        "--",
        "-D",
        "warnings",
    ])
    .run(tally)
}

/// Builds the documentation.
pub fn doc(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "doc")?;
    Step::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run(tally)
}
