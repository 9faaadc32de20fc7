//! Unmodified programs over the C ABI.

use super::none;
use crate::machine::{is_root, need_packages};
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// The programs, the headers and the compiler that C programs are built with, and `nm`.
const PACKAGES: [&str; 11] = [
    "binutils",
    "gcc",
    "ibverbs-utils",
    "libibverbs-dev",
    "librdmacm1",
    "librdmacm-dev",
    "perftest",
    "python3-pyverbs",
    "rdmacm-utils",
    "ucx-utils",
    "valgrind",
];

/// Layouts against Debian's headers, then Debian's programs against each other, and rdma-core's own tests. With `all`, nothing but every
/// combination of the programs' options; with `speed`, how fast they are beside `urxe perf`.
pub fn programs(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let longer: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["all"] => &["--", "--ignored", "--nocapture", "every_"],
        ["speed"] => &["--release", "--", "--ignored", "--nocapture", "fast"],
        _ => return Err(Failure::Usage("programs [all | speed]")),
    };
    need_packages(&PACKAGES, tally)?;
    if longer.is_empty() {
        Step::cargo(&["test", "-p", "urxe-abi", "--", "--ignored"]).run(tally)?;
    }
    let step = Step::cargo(&["test", "-p", "urxe-tests", "--features", "programs", "--test", "programs"]);
    longer.iter().copied().fold(step, Step::arg).run(tally)
}

/// Debian 13's programs and the tests of its rdma-core, unpacked and chrooted to.
pub fn newer(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "newer")?;
    if !is_root() {
        return Err(Failure::Lacks {
            what: "root's rights, which chroot needs".to_owned(),
            remedy: "run sudo -E cargo xtask newer".to_owned(),
        });
    }
    Step::new("tests/programs/newer/setup.sh", &[]).run(tally)?;
    Step::cargo(&["test", "-p", "urxe-tests", "--features", "programs", "--test", "programs"])
        .arg("--")
        .arg("--ignored")
        .arg("newer::")
        .run(tally)
}
