//! Unmodified programs over the C ABI.

use std::process::Command;

use anyhow::{Result, bail};

use super::none;
use super::test::OPTIONAL_TESTS;
use crate::machine::{is_root, need_packages, need_root};
use crate::run::{Runner, cargo};

/// The programs, the headers and the compiler that C programs are built with, and `nm`.
const PACKAGES: [&str; 23] = [
    "binutils",
    "gcc",
    "ibverbs-utils",
    "iperf3",
    "iproute2",
    "libfabric-bin",
    "libibverbs-dev",
    "libmpich-dev",
    "libopenmpi-dev",
    "librdmacm1",
    "librdmacm-dev",
    "mpich",
    "netcat-openbsd",
    "nftables",
    "openmpi-bin",
    "perftest",
    "python3-pyverbs",
    "rdmacm-utils",
    "tcpdump",
    "tshark",
    "ucx-utils",
    "util-linux",
    "valgrind",
];

/// Checks layouts against Debian's headers, then runs Debian's programs against each other, and
/// rdma-core's own tests. With `all`, runs every combination of the programs' options. With
/// `speed`, compares their speed with `urxe perf`.
pub fn programs(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let longer: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["all"] => &["--", "--ignored", "--nocapture", "every_"],
        ["speed"] => &["--release", "--", "--ignored", "--nocapture", "fast"],
        _ => bail!("unknown arguments {arguments:?}; allowed: all, speed, or none"),
    };
    need_packages(&PACKAGES, runner)?;
    if longer.is_empty() {
        let layouts = ["test", "--lib", "layout", "--", "--ignored"];
        runner.run(&mut cargo(layouts))?;
    }
    tests(longer, runner)
}

/// Runs the tests with additional arguments. As root, they get a separate loopback interface,
/// because the programs would share the default device with all processes on 127.0.0.1.
fn tests(more: &[&str], runner: &mut Runner) -> Result<()> {
    const TESTS: [&str; 5] = ["test", "--features", OPTIONAL_TESTS, "--test", "programs"];
    if !is_root() {
        return runner.run(cargo(TESTS).args(more));
    }
    // Built outside: the namespace has no network to fetch anything from.
    let profile = more.first().filter(|argument| **argument == "--release");
    runner.run(cargo(TESTS).args(profile).arg("--no-run"))?;
    let alone = ["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", "cargo"];
    runner.run(Command::new("unshare").args(alone).args(TESTS).args(more))
}

/// Runs the programs of Debian 13 and sid, and the tests of their rdma-core, unpacked and chrooted
/// to.
pub fn newer(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    need_root("newer", "chroot and namespaces")?;
    need_packages(&["iproute2", "util-linux"], runner)?;
    runner.run(&mut Command::new("tests/programs/newer/setup.sh"))?;
    tests(&["--", "--ignored", "newer::"], runner)
}
