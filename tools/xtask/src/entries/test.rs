//! Tests that need nothing but the toolchain.

use std::process::Command;

use anyhow::Result;

use super::{none, number};
use crate::machine::succeeds;
use crate::run::{Runner, cargo};

/// Seeds of the fault simulation, unless another number is given.
const SEEDS: u64 = 2000;

/// The features of the tests with other programs and kernels. All of these tests have both, so that
/// cargo builds the code that they share once.
pub(super) const OPTIONAL_TESTS: &str = "urxe-tests/kernel-peers,urxe-tests/programs";

/// Runs unit and integration tests, with nextest if installed, then the tests of the documentation.
pub fn test(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let (mut tests, mut own) = if succeeds("cargo", &["nextest", "--version"]) {
        (cargo(["nextest", "run", "--no-fail-fast"]), cargo(["nextest", "run", "-p", "xtask"]))
    } else {
        let kinds = ["--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
        (cargo(["test"].into_iter().chain(kinds)), cargo(["test", "-p", "xtask"]))
    };
    // Golden texts are compared and never written, independent of the environment.
    runner.run(tests.env("INSTA_UPDATE", "no"))?;
    // Its dependencies are those of `cargo xtask`, which is running.
    runner.run(own.arg("--no-fail-fast"))?;
    runner.run(&mut cargo(["test", "--doc"]))
}

/// Writes the golden texts from the present output.
pub fn golden(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let mut tests = cargo(["test", "--no-fail-fast"]);
    tests.env("INSTA_UPDATE", "always").env("UPDATE_SNAPSHOTS", "1").env("TRYBUILD", "overwrite");
    runner.run(&mut tests)?;
    runner.run(Command::new("git").args(["status", "--short"]))
}

/// Runs the fault simulations of all services for thousands of seeds, and a hundred thousand
/// connections in virtual time. The build is that of the tests, which is fast enough and has
/// assertions.
pub fn sim(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let seeds = number(arguments, SEEDS)?;
    let simulations =
        ["sim_faults", "sim_multicast", "sim_shared", "sim_unreliable", "sim_windows"];
    let tests = simulations.into_iter().flat_map(|simulation| ["--test", simulation]);
    let mut command = cargo(["test"].into_iter().chain(tests));
    runner.run(command.env("URXE_SIM_SEEDS", seeds.to_string()))?;
    runner.run(&mut cargo(["test", "--lib", "a_hundred_thousand", "--", "--ignored"]))
}
