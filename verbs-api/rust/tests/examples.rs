//! Every example runs, verifies and exits. A new one must be listed here.

use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: [&str; 4] = ["atomics_counter", "lossy_simulation", "one_sided", "ping_pong"];

/// Cargo builds examples with the tests, beside the folder of the test programs.
fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    this.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

fn run(name: &str) {
    let output = Command::new(program(name)).output().unwrap_or_else(|error| {
        panic!("{name}: {error}; `cargo test` without `--test` builds the examples as well")
    });
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !out.is_empty(), "{name}: {}\n{out}{err}", output.status);
}

#[test]
fn ping_pong() {
    run("ping_pong");
}

#[test]
fn one_sided() {
    run("one_sided");
}

#[test]
fn atomics_counter() {
    run("atomics_counter");
}

#[test]
fn lossy_simulation() {
    run("lossy_simulation");
}

#[test]
fn all_are_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES);
}
