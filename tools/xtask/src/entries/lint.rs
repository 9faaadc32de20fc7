//! Formatting, lints, documentation.

use anyhow::Result;

use super::none;
use crate::run::{Runner, cargo};

/// What is built only on demand, but for the fuzz targets, which need a C++ compiler.
const FEATURES: &str = "urxe/serde,urxe-tests/kernel-peers,urxe-tests/programs";

/// Checks the formatting.
pub fn fmt(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    runner.run(&mut cargo(["fmt", "--all", "--check"]))
}

/// Lints libraries, binaries, tests, benches and examples.
pub fn clippy(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let all = ["clippy", "--workspace", "--all-targets", "--features", FEATURES];
    runner.run(cargo(all).args(["--", "-D", "warnings"]))
}

/// Builds the documentation.
pub fn doc(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    runner.run(cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}
