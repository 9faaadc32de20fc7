//! Tests that need nothing but the toolchain.

use super::{none, number};
use crate::machine::succeeds;
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// Seeds of the fault simulation, unless another number is given.
const SEEDS: u64 = 2000;

/// Unit and integration tests (by nextest where it is installed), then the documentation's.
pub fn test(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "test")?;
    let tests = if succeeds("cargo", &["nextest", "--version"]) {
        Step::cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        Step::cargo(&[
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
            "--no-fail-fast",
        ])
    };
    // Golden texts are compared, never written, whatever the environment says.
    tests.env("INSTA_UPDATE", "no").run(tally)?;
    Step::cargo(&["test", "--workspace", "--doc"]).run(tally)
}

/// Writes golden texts anew from what the programs say now.
pub fn golden(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "golden")?;
    Step::cargo(&["test", "--workspace", "--no-fail-fast"])
        .env("INSTA_UPDATE", "always")
        .env("UPDATE_SNAPSHOTS", "1")
        .env("TRYBUILD", "overwrite")
        .run(tally)?;
    Step::new("git", &["status", "--short"]).run(tally)
}

/// The fault simulations of all services, for thousands of seeds, and a hundred thousand
/// connections in virtual time. As the other tests are built: that is optimised enough, and
/// assertions watch.
pub fn sim(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let seeds = number(arguments, SEEDS, "sim [SEEDS]")?;
    let mut step = Step::cargo(&["test", "--workspace"]);
    for simulation in ["sim_faults", "sim_multicast", "sim_shared", "sim_unreliable", "sim_windows"]
    {
        step = step.arg("--test").arg(simulation);
    }
    step.env("URXE_SIM_SEEDS", &seeds.to_string()).run(tally)?;
    Step::cargo(&["test", "--workspace", "--lib", "a_hundred_thousand", "--", "--ignored"])
        .run(tally)
}
