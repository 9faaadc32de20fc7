//! Tests and measurements that need other compiler flags, another toolchain, or root.

use std::process::Command;

use anyhow::{Result, bail};

use super::none;
use crate::machine::{is_root, need_nightly, need_packages, need_root};
use crate::run::{Runner, cargo, target_folder};

/// Runs every test whose name begins with `loom_` under loom. Optimised a little: more takes longer
/// to compile than it saves.
pub fn loom(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let layers = ["-p", "urxe-memory", "-p", "urxe-device", "-p", "urxe-stack"];
    let mut tests = cargo(["test"]);
    tests.args(layers).args(["--lib", "loom_"]);
    tests.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target_folder().join("loom"));
    runner.run(&mut tests)
}

/// Runs the memory module's tests under AddressSanitizer.
pub fn asan(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    need_nightly(runner)?;
    // With a target named, build scripts and procedural macros are built without the sanitizer.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut tests = cargo(["+nightly", "test", "-p", "urxe-memory", "--lib", "--target", &target]);
    tests.env("RUSTFLAGS", "-Zsanitizer=address");
    // The tests are short and compiling them is long; and no fault is optimised away.
    tests.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    runner.run(tests.env("CARGO_TARGET_DIR", target_folder().join("asan")))
}

/// Measures.
pub fn bench(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    runner.run(&mut cargo(["bench", "--workspace", "--benches"]))
}

/// Shows that a message between two devices allocates nothing; fails if it does. Built as the tests
/// are: optimising removes allocations, it adds none.
pub fn allocations(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let bench = ["bench", "--workspace", "--bench", "allocations", "--profile", "dev"];
    runner.run(&mut cargo(bench))
}

/// Counts a message's instructions; fails if they have grown. With `keep`, keeps what was counted.
/// Only what is counted is built as for use; the rest lies there from the tests.
pub fn budget(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let keep: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["keep"] => &["--", "keep"],
        _ => bail!("expected keep, or nothing"),
    };
    need_packages(&["valgrind"], runner)?;
    let mut bench = cargo(["bench", "--workspace", "--bench", "budget", "--profile", "dev"]);
    let counted = [
        "urxe-stack",
        "urxe-device",
        "urxe-memory",
        "urxe-types",
        "urxe-wire",
        // The two hosts of the benchmark, whose work is counted too.
        "urxe-test-support",
        "crc32fast",
    ];
    for counted in counted {
        for as_for_use in
            ["opt-level=3", "codegen-units=1", "debug-assertions=false", "overflow-checks=false"]
        {
            bench.arg("--config").arg(format!("profile.dev.package.{counted}.{as_for_use}"));
        }
    }
    runner.run(bench.env("CARGO_INCREMENTAL", "0").args(keep))
}

/// Looks at the packets themselves, and at what several users and IPv6 need, in network namespaces
/// of their own.
pub fn namespace(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    need_packages(&["iproute2", "util-linux"], runner)?;
    let tests = ["on_the_wire", "interface_changes", "sharing", "cli"];
    // Built outside: the namespace has no network to fetch anything from.
    let named = tests.into_iter().flat_map(|test| ["--test", test]);
    runner.run(&mut cargo(["test", "--workspace", "--no-run"].into_iter().chain(named)))?;
    for test in tests {
        let mut command = Command::new("unshare");
        command.arg("--net");
        if !is_root() {
            command.arg("--map-root-user");
        }
        command.args(["cargo", "test", "--workspace", "--test", test, "--", "--ignored"]);
        // One after the other: they have one loopback interface. What only prints times is left
        // out.
        runner.run(command.args(["--test-threads", "1", "--skip", "what_joining"]))?;
    }
    Ok(())
}

/// Runs pairs with real kernels; with `all`, those that take long; with `speed`, compares how fast
/// urxe and the kernels make connections. The set-up script installs by name what it needs, and
/// does nothing the second time.
pub fn kernel(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let longer: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["all"] => &["--", "--ignored"],
        ["speed"] => &["--release", "--", "--ignored", "--nocapture", "speed::"],
        _ => bail!("expected all, speed, or nothing"),
    };
    need_root("kernel", "network namespaces and the guests' images")?;
    runner.run(&mut Command::new("tests/kernel/setup.sh"))?;
    let features = ["--features", "urxe-tests/kernel-peers", "--test", "kernel_peers"];
    runner.run(cargo(["test", "--workspace"]).args(features).args(longer))
}
