//! The packages in fresh folders with a Debian, as root: each check is a script of `tests/chroots`.
//!
//! | check | content |
//! |---|---|
//! | `package` | the Debian package, its manual, all programs of the machine, removal |
//! | `archive` | the archive, unpacked and moved |
//! | `wheel` | the Python wheel, a test with its plugin for pytest, removal |
//! | `cargo` | `cargo install --path tools/urxe` with this machine's toolchain and crates |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{options, package, remade, wheel, writing};
use crate::machine::{need_packages, need_root};
use crate::run::{Runner, cargo, target_folder};

const CHECKS: [&str; 4] = ["package", "archive", "wheel", "cargo"];
const PACKAGES: [&str; 2] = ["debootstrap", "util-linux"];
/// The oldest release of Debian that the packages support.
const SUITE: &str = "bookworm";

/// Runs the checks, or the named ones. The other arguments are those of `package` and `wheel`.
pub fn chroots(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let (checks, others): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| CHECKS.contains(&&**argument));
    options(&others, false)?;
    need_root("chroots", "chroot and mounts")?;
    need_packages(&PACKAGES, runner)?;
    let is_chosen = |check: &str| checks.is_empty() || checks.iter().any(|name| name == check);
    // In this order: `package` empties the folder of the packages.
    if is_chosen("package") || is_chosen("archive") {
        package(&others, runner)?;
    }
    if is_chosen("wheel") {
        wheel(&others, runner)?;
    }
    if is_chosen("cargo") {
        runner.run(&mut cargo(["fetch", "--locked"]))?;
    }
    let place = target_folder().join("chroots");
    let base = base(&place, runner)?;
    let mut failed = Vec::new();
    for check in CHECKS.into_iter().filter(|check| is_chosen(check)) {
        let root = place.join(check);
        remade(&root).with_context(|| writing(&root))?;
        runner.run(Command::new("cp").args(["-a", "-T"]).args([&base, &root]))?;
        if let Err(error) = runner.run(&mut enter(&root, check)?) {
            println!("\n{check}: {error:#}");
            failed.push(check);
        }
        fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the folder with a Debian that the checks copy. It is made once.
fn base(place: &Path, runner: &mut Runner) -> Result<PathBuf> {
    let base = place.join(SUITE);
    if !base.is_dir() {
        let unfinished = place.join("unfinished");
        remade(&unfinished).with_context(|| writing(&unfinished))?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", "--include=iproute2", SUITE]);
        runner.run(debootstrap.arg(&unfinished))?;
        fs::rename(&unfinished, &base).with_context(|| writing(&base))?;
    }
    Ok(base)
}

/// Returns the command that runs a check. Its mounts and processes end with it.
fn enter(root: &Path, check: &str) -> Result<Command> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output()?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(Path::new(&home).join(".cargo"))
    });
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "tests/chroots/enter.sh"]);
    command.arg(root).arg(check);
    command.env("PACKAGES", target_folder().join("packages"));
    command.env("RUST", sysroot.trim());
    command.env("CARGO", home.context("neither CARGO_HOME nor HOME is set")?);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_unknown_check_is_refused_before_the_build() {
        let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
        chroots(&["archives".to_owned()], &mut runner).unwrap_err();
        assert_eq!(runner.tally.passed, 0, "no command ran");
    }

    #[test]
    fn each_check_has_a_script() {
        for check in CHECKS {
            let script = crate::run::root().join(format!("tests/chroots/{check}.sh"));
            assert!(script.is_file(), "{}", script.display());
        }
    }
}
