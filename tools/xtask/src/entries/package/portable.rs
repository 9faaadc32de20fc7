//! A build for an old glibc, for this machine or another one.
//!
//! A linker takes the newest version of each symbol that the glibc of the machine has. zig has the
//! symbols of every glibc, and cargo-zigbuild links with those of [`GLIBC`]. It needs no C compiler
//! of the other machine. Rust's standard library for it is needed: `rustup target add`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::machine::{is_root, need_packages, succeeds};
use crate::run::{Runner, root, target_folder};

/// The glibc of manylinux_2_28: RHEL 8, Debian 10.
pub const GLIBC: [u32; 2] = [2, 28];
/// The machines for which all crates compile, by Rust's names.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];
/// The releases of zig and cargo-zigbuild, with their hashes.
const REQUIREMENTS: &str = "tools/xtask/zig-requirements.txt";
const PACKAGES: [&str; 3] = ["urxe-tools", "urxe-abi", "urxe-sysfs"];
/// Debuggers find separate debug information by this identifier. gcc adds it by itself.
const FLAGS: &str = "-Clink-arg=-Wl,--build-id";

/// Builds for a machine by Rust's name, and returns the folder with the files.
pub fn build(machine: &str, runner: &mut Runner) -> Result<PathBuf> {
    ensure!(
        MACHINES.contains(&machine),
        "unknown machine {machine:?}; --portable allows {}",
        MACHINES.join(" and ")
    );
    let programs = need_programs(runner)?;
    let target = format!("{machine}-unknown-linux-gnu");
    let folder = target_folder().join("portable");
    let mut build = Command::new(programs.join("bin/cargo-zigbuild"));
    build.args(["zigbuild", "--release", "--target-dir"]).arg(&folder);
    build.arg("--target").arg(format!("{target}.{}.{}", GLIBC[0], GLIBC[1]));
    build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    build.env("CARGO_ZIGBUILD_ZIG_PATH", programs.join("ziglang/zig")).env("RUSTFLAGS", FLAGS);
    runner.run(build.current_dir(root()))?;
    Ok(folder.join(target).join("release"))
}

/// Returns the folder with both programs. Installs them there if they are missing.
fn need_programs(runner: &mut Runner) -> Result<PathBuf> {
    let folder = target_folder().join("zig");
    let works = |folder: &Path| {
        succeeds(folder.join("bin/cargo-zigbuild"), &["--version"])
            && succeeds(folder.join("ziglang/zig"), &["version"])
    };
    if works(&folder) {
        return Ok(folder);
    }
    if !succeeds("python3", &["-m", "pip", "--version"]) {
        if !is_root() {
            bail!(
                "this machine lacks pip, which installs zig; on Debian: apt-get install python3-pip"
            );
        }
        need_packages(&["python3-pip"], runner)?;
    }
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--target"]);
    runner.run(install.arg(&folder).args(["--require-hashes", "-r", REQUIREMENTS]))?;
    works(&folder).then_some(folder).context("the installed zig does not start")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_unknown_machine_is_refused_before_the_build() {
        let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
        let error = build("arm64", &mut runner).unwrap_err().to_string();
        let allowed = "--portable allows x86_64 and aarch64";
        assert_eq!(error, format!("unknown machine \"arm64\"; {allowed}"));
        assert_eq!(runner.tally.passed, 0, "no command ran");
    }
}
