//! Tests and measurements that need other compiler flags, another toolchain, or root.

use super::none;
use crate::machine::{is_root, need_nightly, need_packages};
use crate::step::{Failure, Step};
use crate::tally::Tally;

/// Runs every test whose name begins with `loom_` under loom.
pub fn loom(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "loom")?;
    Step::cargo(&["test", "-p", "urxe-stack", "--release", "--lib", "loom_"])
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
        .target_folder("asan")
        .run(tally)
}

/// Measures.
pub fn bench(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "bench")?;
    Step::cargo(&["bench", "--workspace", "--benches"]).run(tally)
}

/// Shows that a message between two devices allocates nothing; fails if it does.
pub fn allocations(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "allocations")?;
    Step::cargo(&["bench", "-p", "urxe-stack", "--bench", "allocations"]).run(tally)
}

/// Looks at the packets themselves, and at what several users and IPv6 need, in network namespaces of their own.
pub fn namespace(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    none(arguments, "namespace")?;
    need_packages(&["iproute2", "util-linux"], tally)?;
    let tests =
        [("urxe-stack", "on_the_wire"), ("urxe-stack", "interface_changes"), ("urxe-tests", "sharing")];
    for (package, test) in tests {
        // Built outside: the namespace has no network to fetch anything from.
        Step::cargo(&["test", "-p", package, "--test", test, "--no-run"]).run(tally)?;
    }
    for (package, test) in tests {
        let mut step = Step::new("unshare", &["--net"]);
        if !is_root() {
            step = step.arg("--map-root-user");
        }
        // One after the other: they have one loopback interface. What only prints times is left out.
        let cargo =
            ["cargo", "test", "-p", package, "--test", test, "--", "--ignored", "--test-threads", "1"];
        cargo.into_iter().chain(["--skip", "what_joining"]).fold(step, Step::arg).run(tally)?;
    }
    Ok(())
}

/// Pairs with real kernels; with `all`, those that take long. The set-up script installs by name what it needs, and does nothing the
/// second time.
pub fn kernel(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let longer: &[&str] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => &[],
        ["all"] => &["--", "--ignored"],
        _ => return Err(Failure::Usage("kernel [all]")),
    };
    if !is_root() {
        return Err(Failure::Lacks {
            what: "root's rights, which network namespaces and the guests' images need".to_owned(),
            remedy: "run sudo -E cargo xtask kernel".to_owned(),
        });
    }
    Step::new("tests/kernel/setup.sh", &[]).run(tally)?;
    let step =
        Step::cargo(&["test", "-p", "urxe-tests", "--features", "kernel-peers", "--test", "kernel_peers"]);
    longer.iter().copied().fold(step, Step::arg).run(tally)
}
