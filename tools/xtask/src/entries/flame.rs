//! Creates a flame graph of `urxe perf`, with both its processes and the kernel.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::machine::{need_packages, need_program};
use crate::run::{Runner, cargo, target_folder};

/// The default arguments of `urxe perf`.
const USUAL: [&str; 6] = ["write", "--bandwidth", "-s", "65536", "-D", "2"];

/// Records a run and writes `target/flame.svg`. The build has frame pointers, so that stacks are
/// cheap to follow.
pub fn flame(arguments: &[String], runner: &mut Runner) -> Result<()> {
    need_packages(&["linux-perf"], runner)?;
    need_program("inferno", &["inferno-flamegraph", "--version"], runner)?;
    let (folder, picture) = (target_folder().join("flame"), target_folder().join("flame.svg"));
    let mut build = cargo(["build", "--release", "--package", "urxe-tools"]);
    build.env("RUSTFLAGS", "-Cforce-frame-pointers=yes").env("CARGO_TARGET_DIR", &folder);
    runner.run(&mut build)?;

    let record = folder.join("perf.data");
    let mut run: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if run.is_empty() {
        run.extend(USUAL);
    }
    // An odd sampling rate does not coincide with periodic work.
    let mut perf = Command::new("perf");
    perf.args(["record", "-F", "1999", "-g", "-o"]).arg(&record).arg("--");
    runner.run(perf.arg(folder.join("release/urxe")).arg("perf").args(&run))?;

    // The steps use files, because the exit status of a pipe is that of its last command.
    let (stacks, folded) = (folder.join("stacks.txt"), folder.join("stacks.folded"));
    for (script, from, to) in [
        ("perf script -i \"$0\" > \"$1\"", &record, &stacks),
        ("inferno-collapse-perf \"$0\" > \"$1\"", &stacks, &folded),
        ("inferno-flamegraph \"$0\" > \"$1\"", &folded, &picture),
    ] {
        runner.run(Command::new("sh").args(["-c", script]).args([from, to]))?;
    }
    let size = fs::metadata(&picture).map_or(0, |file| file.len());
    println!("\nflame graph of urxe perf {}: {} ({size} bytes)", run.join(" "), picture.display());
    Ok(())
}
