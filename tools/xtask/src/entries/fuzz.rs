//! Each fuzz target for a while. libFuzzer begins with every kept input; that an ordinary build
//! takes them too is a test of the workspace's.

use std::fs;
use std::io;
use std::process::Command;

use super::number;
use crate::machine::{need_cargo_fuzz, need_nightly, need_packages};
use crate::step::{Failure, Step, root, target_folder};
use crate::tally::Tally;

/// Seconds for each target, unless another number is given.
const SECONDS: u64 = 60;
/// libFuzzer is C++.
const PACKAGES: [&str; 1] = ["g++"];

/// Runs each target. It starts from its kept corpus; what it finds new goes to the target folder.
pub fn fuzz(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    let seconds = number(arguments, SECONDS, "fuzz [SECONDS]")?;
    need_packages(&PACKAGES, tally)?;
    need_nightly(tally)?;
    need_cargo_fuzz(tally)?;
    for target in targets()? {
        run_target(&target, seconds, tally)?;
    }
    Ok(())
}

fn run_target(target: &str, seconds: u64, tally: &mut Tally) -> Result<(), Failure> {
    let found = target_folder().join("fuzz-found").join(target);
    let kept = root().join("fuzz/corpus").join(target);
    for folder in [&found, &kept] {
        let command = format!("mkdir {}", folder.display());
        fs::create_dir_all(folder).map_err(|error| Failure::Start { command, error })?;
    }
    let mut step = Step::cargo(&["+nightly", "fuzz", "run", "--features", "libfuzzer", target])
        .arg(&found.display().to_string())
        .arg(&kept.display().to_string())
        .arg("--")
        .arg(&format!("-max_total_time={seconds}"))
        .arg("-print_final_stats=1");
    let dictionary = root().join("fuzz/dictionaries").join(format!("{target}.dict"));
    if dictionary.exists() {
        step = step.arg(&format!("-dict={}", dictionary.display()));
    }
    // Optimising across crates takes longer than CI's fuzzing.
    step.env("CARGO_PROFILE_RELEASE_LTO", "off").target_folder("fuzz").run(tally)
}

/// The targets that `cargo fuzz` knows.
fn targets() -> Result<Vec<String>, Failure> {
    let command = "cargo +nightly fuzz list".to_owned();
    let output =
        Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(root()).output();
    let output = output.map_err(|error| Failure::Start { command: command.clone(), error })?;
    if !output.status.success() {
        let last = String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect();
        return Err(Failure::Step { command, status: output.status, last });
    }
    let targets: Vec<String> =
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect();
    if targets.is_empty() {
        let error = io::Error::new(io::ErrorKind::NotFound, "it lists no target");
        return Err(Failure::Start { command, error });
    }
    Ok(targets)
}
