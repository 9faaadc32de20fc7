//! Each fuzz target for a while. libFuzzer begins with every kept input; that an ordinary build
//! takes them too is a test of the workspace's.

use std::fs;

use anyhow::{Context as _, Result, bail};

use super::number;
use crate::machine::{need_nightly, need_packages, need_program};
use crate::run::{Runner, cargo, root, target_folder};

/// Seconds for each target, unless another number is given.
const SECONDS: u64 = 60;
/// libFuzzer is C++.
const PACKAGES: [&str; 1] = ["g++"];

/// Runs each target. A target starts with its kept corpus; new inputs are stored in the target
/// folder.
pub fn fuzz(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let seconds = number(arguments, SECONDS)?;
    need_packages(&PACKAGES, runner)?;
    need_nightly(runner)?;
    need_program("cargo-fuzz", &["cargo", "fuzz", "--version"], runner)?;
    let listed = cargo(["+nightly", "fuzz", "list"]).output()?;
    let targets = String::from_utf8_lossy(&listed.stdout);
    if !listed.status.success() || targets.trim().is_empty() {
        bail!("cargo fuzz lists no target: {}", String::from_utf8_lossy(&listed.stderr));
    }
    targets.split_whitespace().try_for_each(|target| run_target(target, seconds, runner))
}

fn run_target(target: &str, seconds: u64, runner: &mut Runner) -> Result<()> {
    let found = target_folder().join("fuzz-found").join(target);
    let kept = root().join("fuzz/corpus").join(target);
    for folder in [&found, &kept] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut command = cargo(["+nightly", "fuzz", "run", "--features", "libfuzzer", target]);
    command.args([found, kept]).arg("--").arg(format!("-max_total_time={seconds}"));
    command.arg("-print_final_stats=1");
    let dictionary = root().join("fuzz/dictionaries").join(format!("{target}.dict"));
    if dictionary.exists() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    // Optimising across crates takes longer than CI's fuzzing.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    if seconds < SECONDS {
        // So does much optimisation. Without any, a target takes minutes for its kept inputs.
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        command.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    }
    // The backtrace of cargo-fuzz's own error would be the last lines of the log. It hides what the
    // compiler or the target wrote before.
    command.env("RUST_LIB_BACKTRACE", "0");
    runner.run(command.env("CARGO_TARGET_DIR", target_folder().join("fuzz")))
}
