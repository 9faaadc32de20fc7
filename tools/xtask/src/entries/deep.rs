//! Tests and measurements that need other compiler flags, another toolchain, or root.

use std::process::Command;

use anyhow::{Result, bail};

use super::none;
use super::test::OPTIONAL_TESTS;
use crate::machine::{is_root, need_nightly, need_packages, need_root};
use crate::run::{Runner, cargo, script, target_folder};

/// Runs the tests named `loom_…` under loom. A low optimisation level is used, because a higher one
/// takes longer to compile than it saves.
pub fn loom(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let layers = ["urxe-memory", "urxe-device", "urxe-io", "urxe-stack"];
    let mut tests = cargo(["test"]);
    tests.args(layers.iter().flat_map(|layer| ["-p", layer])).args(["--lib", "loom_"]);
    // Only the workspace's crates have other code for loom. `RUSTFLAGS` would also build all their
    // dependencies again.
    let rustc = script("rustc-loom", "exec \"$@\" --cfg loom")?;
    runner.run(tests.env("RUSTC_WORKSPACE_WRAPPER", rustc))
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

/// Runs the criterion benchmarks.
pub fn bench(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    runner.run(&mut cargo(["bench", "--benches"]))
}

/// Checks that a message between two devices allocates nothing. The build is that of the tests,
/// because optimisation only removes allocations.
pub fn allocations(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let bench = ["bench", "--bench", "allocations", "--profile", "dev"];
    runner.run(&mut cargo(bench))
}

/// Counts the instructions of a message, and fails if the count has grown. With `keep`, stores the
/// new counts. Only the counted crates are optimised; the other crates are reused from the tests.
pub fn budget(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let keep: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["keep"] => &["--", "keep"],
        _ => bail!("unknown arguments {arguments:?}; allowed: keep, or none"),
    };
    need_packages(&["valgrind"], runner)?;
    let mut bench = cargo(["bench", "--bench", "budget", "--profile", "dev"]);
    let counted = [
        "urxe-stack",
        "urxe-device",
        "urxe-memory",
        "urxe-types",
        "urxe-wire",
        // The two hosts of the benchmark, whose instructions count as well.
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

/// Runs tests that inspect packets, and tests with several users and with IPv6, in separate network
/// namespaces.
pub fn namespace(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    need_packages(&["iproute2", "util-linux"], runner)?;
    let tests = ["on_the_wire", "interface_changes", "sharing", "soak", "cli", "forger"];
    // Built outside: the namespace has no network to fetch anything from.
    let named = tests.into_iter().flat_map(|test| ["--test", test]);
    runner.run(&mut cargo(["test", "--no-run"].into_iter().chain(named)))?;
    for test in tests {
        // Skips tests that only print times, and those of `cargo xtask sharing`.
        runner.run(in_namespace(test).args([
            "--skip",
            "cost_of_joining",
            "--skip",
            "all_to_all",
        ]))?;
    }
    Ok(())
}

/// Returns the command that runs the ignored tests of a target in a network namespace, one after
/// the other, because they share a loopback interface. The target is built before, because the
/// namespace has no network to fetch anything from.
pub(super) fn in_namespace(test: &str) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.args(["cargo", "test", "--test", test, "--", "--ignored"]);
    command.args(["--test-threads", "1"]);
    command
}

/// Runs pairs with real kernels, in two processes at the same time. With `newest`, the kernels are
/// 6.12 and Debian's newest one, instead of 6.1 and 6.12. With `all`, runs the long pairs. With
/// `speed`, compares the connection rates of urxe and the kernels. The set-up script installs its
/// packages by name, and does nothing the second time.
pub fn kernel(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let mut words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let is_newest = words.first() == Some(&"newest");
    words.drain(..usize::from(is_newest));
    let longer: &[&str] = match words[..] {
        [] => &[],
        // The speeds are those of a release build.
        ["all"] => &["--", "--ignored", "--skip", "speed::"],
        ["speed"] => &["--release", "--", "--ignored", "--nocapture", "speed::"],
        _ => bail!("unknown arguments {arguments:?}; allowed: newest, then all, speed, or none"),
    };
    need_root("kernel", "network namespaces and the guests' images")?;
    let mut setup = Command::new("tests/kernel/setup.sh");
    let tests = |more: &[&str]| {
        let mut tests = cargo(["test", "--features", OPTIONAL_TESTS, "--test", "kernel_peers"]);
        if is_newest {
            tests.env("URXE_KERNEL_VERSIONS", "6.12,newest");
        }
        tests.args(more);
        tests
    };
    if is_newest {
        setup.args(["--kernel", "newest"]);
    }
    runner.run(&mut setup)?;
    if !longer.is_empty() {
        return runner.run(&mut tests(longer));
    }
    runner.run(&mut tests(&["--no-run"]))?;
    // The processes have guests of their own, and a guest uses one processor.
    let (mut pairs, mut others) = (tests(&["--", "urxe::"]), tests(&["--", "--skip", "urxe::"]));
    runner.run_both(&mut pairs, &mut others, &target_folder().join("kernel-others.log"))
}
