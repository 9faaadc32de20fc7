//! Mutation tests: cargo-mutants changes one operator, match arm or function body at a time, and
//! the tests of the crate must fail.
//!
//! `.cargo/mutants.toml` has the options, and the mutants that no test can detect. A mutant that
//! makes a test hang counts as detected. The scenarios of `urxe-tests` take long to compile, so
//! they run only with the mutants that the tests of the crate do not detect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::machine::need_program;
use crate::run::{Runner, cargo, target_folder};

/// The crates with mutants, each with its mutated files.
const TARGETS: [(&str, &[&str]); 3] = [
    ("urxe-wire", &["wire/src/**/*.rs"]),
    ("urxe-device", &["stack/device/src/qp/**/*.rs"]),
    (
        "urxe-cm",
        &[
            "stack/cm/src/cm/**/*.rs",
            "stack/cm/src/cma/attributes.rs",
            "stack/cm/src/cma/incoming.rs",
        ],
    ),
];
/// The crate whose mutants the scenarios test as well.
const WITH_SCENARIOS: &str = "urxe-device";
/// The exit statuses of cargo-mutants if a mutant survived, and if only some made tests hang.
const SURVIVED: i32 = 2;
const ONLY_HUNG: i32 = 3;

/// Tests all mutants. With `--in-diff`, tests the mutants of the lines that differ from the branch
/// `main`, or from another commit that follows the option.
pub fn mutants(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let base = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--in-diff"] => Some("main"),
        ["--in-diff", base] => Some(base),
        _ => bail!("unknown arguments {arguments:?}; allowed: --in-diff [COMMIT], or none"),
    };
    need_program("cargo-mutants", &["cargo", "mutants", "--version"], runner)?;
    let output = target_folder().join("mutants");
    fs::create_dir_all(&output)?;
    let diff = base.map(|base| changes_since(base, &output)).transpose()?;
    for (package, files) in TARGETS {
        let mutants = || {
            let mut command = cargo(["mutants", "--package", package]);
            for file in files {
                command.args(["--file", file]);
            }
            if let Some(diff) = &diff {
                command.arg("--in-diff").arg(diff);
            }
            // Debug information makes each build slower.
            command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_PROFILE_TEST_DEBUG", "none");
            command.env("CARGO_INCREMENTAL", "1").arg("--output").arg(output.join(package));
            command
        };
        // Tests of the documentation take longer to compile than to run.
        let mut own = mutants();
        own.args(["--", "--tests"]);
        if package != WITH_SCENARIOS {
            runner.run_accepting(&mut own, &[0, ONLY_HUNG])?;
            continue;
        }
        runner.run_accepting(&mut own, &[0, SURVIVED, ONLY_HUNG])?;
        let mut scenarios = mutants();
        scenarios.args(["--iterate", "--test-package", "urxe-tests"]);
        scenarios.args(["--", "--test", "scenarios_*", "--test", "xrc_packets"]);
        runner.run_accepting(&mut scenarios, &[0, ONLY_HUNG])?;
    }
    Ok(())
}

/// Writes the changes since the common ancestor with `base` to a file, committed or not.
fn changes_since(base: &str, folder: &Path) -> Result<PathBuf> {
    let mut git = Command::new("git");
    let output =
        git.args(["diff", "--no-ext-diff", "--no-color", "--merge-base", base]).output()?;
    if !output.status.success() {
        bail!("git diff {base}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let path = folder.join("changes.diff");
    fs::write(&path, output.stdout).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    #[test]
    fn the_crates_and_their_files_exist() {
        for (package, files) in TARGETS {
            for file in files {
                let path = root().join(file.trim_end_matches("/**/*.rs"));
                assert!(path.exists(), "{file}");
                let crate_folder = path.ancestors().find(|path| path.join("Cargo.toml").exists());
                let manifest = crate_folder.unwrap().join("Cargo.toml");
                let name = format!("name = \"{package}\"");
                assert!(fs::read_to_string(manifest).unwrap().contains(&name), "{package}");
            }
        }
    }
}
