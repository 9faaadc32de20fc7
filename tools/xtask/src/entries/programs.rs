//! Unmodified programs over the C ABI.

use super::none;
use crate::machine::need_packages;
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// The programs, the headers and the compiler that C programs are built with, and `nm`.
const PACKAGES: [&str; 9] = [
    "binutils",
    "gcc",
    "ibverbs-utils",
    "libibverbs-dev",
    "librdmacm1",
    "perftest",
    "python3-pyverbs",
    "ucx-utils",
    "valgrind",
];

/// Layouts against Debian's headers, then Debian's programs against each other, and rdma-core's own tests.
pub fn programs(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "programs")?;
    need_packages(&PACKAGES, tally)?;
    Step::cargo(&["test", "-p", "urxe-abi", "--", "--ignored"]).run(tally)?;
    Step::cargo(&["test", "-p", "urxe-tests", "--features", "programs", "--test", "programs"]).run(tally)
}
