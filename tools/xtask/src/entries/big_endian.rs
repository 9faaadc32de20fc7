//! Big endian: the tests of the packet formats and of the protocol core on s390x, in QEMU's user
//! mode.
//!
//! The other crates are left out. Their tests need sockets and handlers of memory faults, and the
//! first test of `urxe-memory` ends with SIGSEGV there.

use anyhow::Result;

use super::arm::need_target;
use super::none;
use crate::machine::need_packages;
use crate::run::{Runner, cargo, target_folder};

const TARGET: &str = "s390x-unknown-linux-gnu";
/// The compiler that links, and the emulator.
const PACKAGES: [&str; 3] = ["gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-user-static"];
/// The crates whose tests run.
const CRATES: [&str; 5] = ["urxe-wire", "urxe-types", "urxe-device", "urxe-cm", "urxe-sim"];
/// A test that the emulator needs minutes for.
const TOO_LONG: &str = "after_a_million_forged_mads";

/// Runs the unit tests of [`CRATES`] on a big-endian processor.
pub fn big_endian(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    need_packages(&PACKAGES, runner)?;
    need_target(TARGET, runner)?;
    let mut tests = cargo(["test", "--lib", "--no-fail-fast", "--target", TARGET]);
    for name in CRATES {
        tests.args(["-p", name]);
    }
    tests.env("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER", "s390x-linux-gnu-gcc");
    let emulator = "qemu-s390x-static -L /usr/s390x-linux-gnu";
    tests.env("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER", emulator);
    tests.env("CARGO_TARGET_DIR", target_folder().join("big-endian"));
    runner.run(tests.args(["--", "--skip", TOO_LONG]))
}
