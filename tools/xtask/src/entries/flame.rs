//! A flame graph: where the processor's time goes in a run of `urxe perf`, in both its processes
//! and in the kernel.

use std::fs;

use crate::machine::{need_inferno, need_packages};
use crate::step::{Failure, Step, target_folder};
use crate::tally::Tally;

/// What is run unless `urxe perf` is told otherwise.
const USUAL: [&str; 6] = ["write", "--bandwidth", "-s", "65536", "-D", "2"];

/// Records a run and draws it to `target/flame.svg`, for a browser. Built with frame pointers, so
/// that stacks can be followed cheaply.
pub fn flame(arguments: &[String], tally: &mut Tally) -> Result<(), Failure> {
    need_packages(&["linux-perf"], tally)?;
    need_inferno(tally)?;
    Step::cargo(&["build", "--release", "--package", "urxe-tools"])
        .env("RUSTFLAGS", "-Cforce-frame-pointers=yes")
        .target_folder("flame")
        .run(tally)?;

    let (record, picture) =
        (target_folder().join("flame/perf.data"), target_folder().join("flame.svg"));
    let record = record.display().to_string();
    let mut run: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if run.is_empty() {
        run.extend(USUAL);
    }
    // An odd number of samples a second: nothing of ours comes as often.
    let perf = Step::new("perf", &["record", "-F", "1999", "-g", "-o", &record, "--"])
        .arg(&target_folder().join("flame/release/urxe").display().to_string())
        .arg("perf");
    run.iter().copied().fold(perf, Step::arg).run(tally)?;

    // By files: a pipe tells of its last command only.
    let stacks = target_folder().join("flame/stacks");
    for (script, from, to) in [
        ("perf script -i \"$0\" > \"$1\"", record.as_str(), stacks.with_extension("txt")),
        ("inferno-collapse-perf \"$0\" > \"$1\"", "stacks.txt", stacks.with_extension("folded")),
        ("inferno-flamegraph \"$0\" > \"$1\"", "stacks.folded", picture.clone()),
    ] {
        let from = target_folder().join("flame").join(from).display().to_string();
        Step::new("sh", &["-c", script]).arg(&from).arg(&to.display().to_string()).run(tally)?;
    }
    let size = fs::metadata(&picture).map_or(0, |file| file.len());
    println!("\nflame graph of urxe perf {}: {} ({size} bytes)", run.join(" "), picture.display());
    Ok(())
}
