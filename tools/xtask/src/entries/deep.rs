//! Tests and measurements that need other compiler flags, another toolchain, or root.

use super::none;
use crate::machine::{is_root, need_nightly, need_packages};
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// Runs every test whose name begins with `loom_` under loom. Optimised a little: more takes longer
/// to compile than it saves.
pub fn loom(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "loom")?;
    Step::cargo(&["test", "-p", "urxe-stack", "--lib", "loom_"])
        .env("RUSTFLAGS", "--cfg loom")
        .target_folder("loom")
        .run(tally)
}

/// Runs the memory module's tests under AddressSanitizer.
pub fn asan(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "asan")?;
    need_nightly(tally)?;
    // With a target named, build scripts and procedural macros are built without the sanitizer.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    Step::cargo(&["+nightly", "test", "-p", "urxe-stack", "--lib", "--target", &target, "memory::"])
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // The tests are short and compiling them is long; and nothing is optimised away that would
        // be wrong.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .target_folder("asan")
        .run(tally)
}

/// Measures.
pub fn bench(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "bench")?;
    Step::cargo(&["bench", "--workspace", "--benches"]).run(tally)
}

/// Shows that a message between two devices allocates nothing; fails if it does. Built as the tests
/// are: optimising removes allocations, it adds none.
pub fn allocations(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "allocations")?;
    Step::cargo(&["bench", "--workspace", "--bench", "allocations", "--profile", "dev"]).run(tally)
}

/// Counts a message's instructions; fails if they have grown. With `keep`, keeps what was counted.
/// Only what is counted is built as for use; the rest lies there from the tests.
pub fn budget(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let keep: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["keep"] => &["--", "keep"],
        _ => return Err(Failure::Usage("budget [keep]")),
    };
    need_packages(&["valgrind"], tally)?;
    let mut step = Step::cargo(&["bench", "--workspace", "--bench", "budget", "--profile", "dev"])
        .env("CARGO_INCREMENTAL", "0");
    for counted in ["urxe-stack", "urxe-wire", "crc32fast"] {
        for as_for_use in
            ["opt-level=3", "codegen-units=1", "debug-assertions=false", "overflow-checks=false"]
        {
            step = step.arg("--config").arg(&format!("profile.dev.package.{counted}.{as_for_use}"));
        }
    }
    keep.iter().copied().fold(step, Step::arg).run(tally)
}

/// Looks at the packets themselves, and at what several users and IPv6 need, in network namespaces
/// of their own.
pub fn namespace(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "namespace")?;
    need_packages(&["iproute2", "util-linux"], tally)?;
    let tests = ["on_the_wire", "interface_changes", "sharing", "cli"];
    let build = Step::cargo(&["test", "--workspace", "--no-run"]);
    // Built outside: the namespace has no network to fetch anything from.
    tests.iter().fold(build, |build, test| build.arg("--test").arg(test)).run(tally)?;
    for test in tests {
        let mut step = Step::new("unshare", &["--net"]);
        if !is_root() {
            step = step.arg("--map-root-user");
        }
        // One after the other: they have one loopback interface. What only prints times is left
        // out.
        let cargo = [
            "cargo",
            "test",
            "--workspace",
            "--test",
            test,
            "--",
            "--ignored",
            "--test-threads",
            "1",
        ];
        cargo.into_iter().chain(["--skip", "what_joining"]).fold(step, Step::arg).run(tally)?;
    }
    Ok(())
}

/// Pairs with real kernels; with `all`, those that take long; with `speed`, how much faster than
/// theirs urxe makes connections. The set-up script installs by name what it needs, and does
/// nothing the second time.
pub fn kernel(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let longer: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["all"] => &["--", "--ignored"],
        ["speed"] => &["--release", "--", "--ignored", "--nocapture", "speed::"],
        _ => return Err(Failure::Usage("kernel [all | speed]")),
    };
    if !is_root() {
        return Err(Failure::Lacks {
            what: "root's rights, which network namespaces and the guests' images need".to_owned(),
            remedy: "run sudo -E cargo xtask kernel".to_owned(),
        });
    }
    Step::new("tests/kernel/setup.sh", &[]).run(tally)?;
    let step = Step::cargo(&[
        "test",
        "--workspace",
        "--features",
        "urxe-tests/kernel-peers",
        "--test",
        "kernel_peers",
    ]);
    longer.iter().copied().fold(step, Step::arg).run(tally)
}
