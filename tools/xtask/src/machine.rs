//! Requirements on the machine: programs, packages, toolchains, root rights.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run::{Runner, cargo};

/// Returns whether the process has root rights.
pub fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Fails without root rights; the error names `what` needs them.
pub fn need_root(task: &str, what: &str) -> Result<()> {
    if !is_root() {
        bail!("{what} need root rights: run sudo -E cargo xtask {task}");
    }
    Ok(())
}

/// Returns whether a command succeeds; its output is discarded.
pub fn succeeds(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs missing Debian packages as root; otherwise fails with the command to run.
pub fn need_packages(packages: &[&str], runner: &mut Runner) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !succeeds("apt-get", &["--version"]) {
        let missing = missing.join(" ");
        bail!(
            "this machine lacks {missing}; as root on Debian or Ubuntu: \
             apt-get install --no-install-recommends {missing}"
        );
    }
    runner.run(Command::new("apt-get").args(["-qq", "update"]))?;
    let install = ["-qq", "install", "-y", "--no-install-recommends"];
    let mut command = Command::new("apt-get");
    runner.run(command.args(install).args(missing).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Returns whether a Debian package is installed.
pub fn is_installed(package: &str) -> bool {
    let output =
        Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]).output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

/// Makes sure of the nightly toolchain, which sanitizers and fuzzing need.
pub fn need_nightly(runner: &mut Runner) -> Result<()> {
    if succeeds("cargo", &["+nightly", "--version"]) {
        return Ok(());
    }
    if !succeeds("rustup", &["--version"]) {
        bail!(
            "this machine lacks the nightly toolchain; install rustup, which installs the toolchain"
        );
    }
    let install = ["toolchain", "install", "nightly", "--profile", "minimal"];
    runner.run(Command::new("rustup").args(install))
}

/// Installs a program such as `cargo fuzz` with cargo, unless the command `probe` succeeds. A debug
/// build is sufficient, because the program only starts other programs or reads text.
pub fn need_program(package: &str, probe: &[&str], runner: &mut Runner) -> Result<()> {
    if succeeds(probe[0], &probe[1..]) {
        return Ok(());
    }
    runner.run(&mut cargo(["install", package, "--locked", "--debug"]))
}
