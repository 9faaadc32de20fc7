//! Unmodified programs over the C ABI.

use super::none;
use crate::machine::{is_root, need_packages};
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// The programs, the headers and the compiler that C programs are built with, and `nm`.
const PACKAGES: [&str; 19] = [
    "binutils",
    "gcc",
    "ibverbs-utils",
    "iperf3",
    "iproute2",
    "libfabric-bin",
    "libibverbs-dev",
    "librdmacm1",
    "librdmacm-dev",
    "netcat-openbsd",
    "nftables",
    "perftest",
    "python3-pyverbs",
    "rdmacm-utils",
    "tcpdump",
    "tshark",
    "ucx-utils",
    "util-linux",
    "valgrind",
];

/// Layouts against Debian's headers, then Debian's programs against each other, and rdma-core's own
/// tests. With `all`, nothing but every combination of the programs' options; with `speed`, how
/// fast they are beside `urxe perf`.
pub fn programs(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let longer: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["all"] => &["--", "--ignored", "--nocapture", "every_"],
        ["speed"] => &["--release", "--", "--ignored", "--nocapture", "fast"],
        _ => return Err(Failure::Usage("programs [all | speed]")),
    };
    need_packages(&PACKAGES, tally)?;
    if longer.is_empty() {
        Step::cargo(&["test", "--workspace", "--lib", "layout", "--", "--ignored"]).run(tally)?;
    }
    tests(longer, tally)
}

/// The tests with these arguments more, by root on a loopback interface of their own: the programs
/// share the default device with whoever else is on 127.0.0.1, and must not be disturbed by another
/// user's.
fn tests(more: &[&str], tally: &mut Tally) -> Result<(), Failure> {
    const TESTS: [&str; 6] =
        ["test", "--workspace", "--features", "urxe-tests/programs", "--test", "programs"];
    let step = if is_root() {
        // Built outside: the namespace has no network to fetch anything from.
        let profile = more.first().filter(|argument| **argument == "--release");
        profile
            .copied()
            .into_iter()
            .fold(Step::cargo(&TESTS), Step::arg)
            .arg("--no-run")
            .run(tally)?;
        let alone = ["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", "cargo"];
        TESTS.into_iter().fold(Step::new("unshare", &alone), Step::arg)
    } else {
        Step::cargo(&TESTS)
    };
    more.iter().copied().fold(step, Step::arg).run(tally)
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
    need_packages(&["iproute2", "util-linux"], tally)?;
    Step::new("tests/programs/newer/setup.sh", &[]).run(tally)?;
    tests(&["--", "--ignored", "newer::"], tally)
}
