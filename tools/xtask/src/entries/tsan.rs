//! The C ABI under ThreadSanitizer: the random calls of `abi-fuzz`, most in several threads.
//!
//! The sanitizer must see each lock, so `-Zbuild-std` also compiles the standard library with it.
//! The program contains the runtime of rustc, because gcc's runtime lacks functions that rustc
//! calls. The sanitizer needs the addresses of a process without randomisation (`setarch`).
//!
//! The sanitizer does not see the accesses of other processes to registered memory. loom checks all
//! orders of single locks and atomics, which random calls reach by chance only.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::number;
use crate::machine::{need_nightly, need_packages};
use crate::run::{Runner, cargo, target_folder};

/// The runs of a seed: steps or rounds, and the mode.
const RUNS: [&[&str]; 4] = [&["2000"], &["1", "threads"], &["2", "cm"], &["2", "sockets"]];
/// Limits of the program for a library that is ten times slower: seconds without progress, and the
/// exponent of the time for an acknowledgement.
const LIMITS: [&str; 2] = ["-DHANG=600", "-DLINK_TIMEOUT=21"];

/// Runs random calls of a number of seeds over a library with ThreadSanitizer.
pub fn tsan(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let seeds = number(arguments, 5)?;
    need_nightly(runner)?;
    need_packages(&["gcc", "libibverbs-dev", "librdmacm-dev", "util-linux"], runner)?;
    let install = ["component", "add", "rust-src", "--toolchain", "nightly"];
    runner.run(Command::new("rustup").args(install))?;
    let folder = build(runner)?;
    for seed in 1..=seeds {
        for run in RUNS {
            let mut command = Command::new("timeout");
            command.args(["1200", "setarch", "-R"]).arg(folder.join("abi_fuzz"));
            command.arg(seed.to_string()).args(run);
            command.env("TSAN_OPTIONS", "exitcode=66").env("LD_LIBRARY_PATH", &folder);
            runner.run(command.env("URXE_DEVICES", "rxe0=127.79.0.56"))?;
        }
    }
    Ok(())
}

/// Builds the library and the program. Returns their folder.
fn build(runner: &mut Runner) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let built = target_folder().join("tsan");
    let mut library = cargo(["+nightly", "build", "-Zbuild-std", "-p", "urxe-abi", "--target"]);
    // The program defines the sanitizer's functions.
    library.arg(&target).env("RUSTFLAGS", "-Zsanitizer=thread -Clink-arg=-Wl,-z,undefs");
    library.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_TARGET_DIR", &built);
    runner.run(&mut library)?;
    let folder = built.join("programs");
    fs::create_dir_all(&folder)?;
    fs::copy(built.join(&target).join("debug/liburxe.so"), folder.join("liburxe.so"))?;
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let link = folder.join(name);
        if !link.exists() {
            symlink("liburxe.so", link)?;
        }
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-rdynamic"]).args(LIMITS);
    gcc.arg("-o").arg(folder.join("abi_fuzz")).arg("tests/programs/abi_fuzz.c");
    gcc.arg("-Wl,--whole-archive").arg(runtime()?).arg("-Wl,--no-whole-archive");
    let libraries = ["-libverbs", "-lrdmacm", "-pthread", "-lstdc++", "-lm", "-ldl", "-lrt"];
    runner.run(gcc.args(libraries))?;
    Ok(folder)
}

/// Returns the runtime of the nightly toolchain.
fn runtime() -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    let printed = rustc.args(["+nightly", "--print", "target-libdir"]).output()?;
    let folder = String::from_utf8(printed.stdout)?;
    let entries = fs::read_dir(Path::new(folder.trim()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .find(|file| file.to_string_lossy().ends_with("_rt.tsan.a"))
        .context("the nightly toolchain has no runtime of ThreadSanitizer")
}
