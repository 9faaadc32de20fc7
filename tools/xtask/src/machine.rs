//! What the machine has: programs, packages, toolchains, root.

use std::process::{Command, Stdio};

use crate::step::{Failure, Step};
use crate::tally::Tally;

/// Whether this process is root's.
pub fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether a command runs and succeeds; its output is dropped.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Makes sure that Debian's packages are there: installs them if root, else tells how to.
pub fn need_packages(packages: &[&str], tally: &mut Tally) -> Result<(), Failure> {
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    if !is_root() || !succeeds("apt-get", &["--version"]) {
        return Err(Failure::Lacks {
            what: missing.join(", "),
            remedy: format!("as root on Debian or Ubuntu: {command}"),
        });
    }
    Step::new("apt-get", &["-qq", "update"]).run(tally)?;
    let install = Step::new("apt-get", &["-qq", "install", "-y", "--no-install-recommends"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    missing.into_iter().fold(install, Step::arg).run(tally)
}

fn is_installed(package: &str) -> bool {
    let output =
        Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]).output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

/// Makes sure that the nightly toolchain is there, which sanitizers and fuzzing need.
pub fn need_nightly(tally: &mut Tally) -> Result<(), Failure> {
    if succeeds("cargo", &["+nightly", "--version"]) {
        return Ok(());
    }
    if !succeeds("rustup", &["--version"]) {
        return Err(Failure::Lacks {
            what: "the nightly toolchain".to_owned(),
            remedy: "install rustup, which fetches it".to_owned(),
        });
    }
    Step::new("rustup", &["toolchain", "install", "nightly", "--profile", "minimal"]).run(tally)
}

/// Makes sure that `cargo fuzz` is there.
pub fn need_cargo_fuzz(tally: &mut Tally) -> Result<(), Failure> {
    if succeeds("cargo", &["fuzz", "--version"]) {
        return Ok(());
    }
    // It only starts other programs: built the quick way it is as fast.
    Step::cargo(&["install", "cargo-fuzz", "--locked", "--debug"]).run(tally)
}

/// Makes sure that inferno's programs are there, which draw flame graphs.
pub fn need_inferno(tally: &mut Tally) -> Result<(), Failure> {
    if succeeds("inferno-flamegraph", &["--version"]) {
        return Ok(());
    }
    Step::cargo(&["install", "inferno", "--locked", "--debug"]).run(tally)
}
