//! AArch64: the structures of the C ABI, the tests in an emulated machine, and its kernels.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::test::OPTIONAL_TESTS;
use crate::machine::{need_packages, need_root};
use crate::run::{Runner, cargo, target_folder};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The compiler that links, the emulators, and the headers of the C ABI.
const PACKAGES: [&str; 6] = [
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "libibverbs-dev",
    "librdmacm-dev",
    "qemu-system-arm",
    "qemu-user-static",
];
/// Packages whose tests need cargo or a C compiler.
const WITHOUT_TESTS: [&str; 3] = ["xtask", "urxe-compile-fail", "urxe-fuzz"];

/// Runs the steps, or the named ones. Another argument is the filter of `tests` and `kernel`. With
/// `--ci`, only compiles, if that needs no download.
///
/// | step | content |
/// |---|---|
/// | `check` | compiles all crates with their tests |
/// | `layout` | a C compiler lays the structures of libibverbs out alike |
/// | `tests` | the tests, as an ordinary user of an emulated machine |
/// | `kernel` | pairs of this machine's urxe with the machine's own `rdma_rxe` |
pub fn arm(arguments: &[String], runner: &mut Runner) -> Result<()> {
    const STEPS: [&str; 4] = ["check", "layout", "tests", "kernel"];
    if arguments == ["--ci"] {
        return check_if_installed(runner);
    }
    let (steps, filters): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|word| STEPS.contains(word));
    if filters.len() > 1 || steps.is_empty() && !filters.is_empty() {
        bail!(
            "unknown arguments {filters:?}; allowed: {}, and behind them one filter of the tests",
            STEPS.join(", ")
        );
    }
    let is_chosen = |step| steps.is_empty() || steps.contains(&step);
    need_root("arm", "network namespaces and the guests' images")?;
    need_packages(&PACKAGES, runner)?;
    need_target(TARGET, runner)?;
    if is_chosen("check") {
        let check = ["check", "--all-targets", "--target", TARGET];
        runner.run(&mut for_target(check))?;
    }
    if is_chosen("layout") {
        let layout = ["test", "-p", "urxe-abi", "--lib", "for_aarch64", "--", "--ignored"];
        runner.run(&mut cargo(layout))?;
    }
    if is_chosen("tests") || is_chosen("kernel") {
        runner.run(Command::new("tests/kernel/setup.sh").args(["--arch", "arm64"]))?;
    }
    if is_chosen("tests") {
        let list = build_tests()?;
        let mut tests = guests("in_guest");
        tests.env("URXE_GUEST_TESTS", list);
        tests.env("URXE_GUEST_FOLDER", std::env::current_dir()?);
        runner.run(tests.args(&filters))?;
    }
    if is_chosen("kernel") {
        runner.run(guests("kernel_peers").args(&filters))?;
    }
    Ok(())
}

/// Checks all crates if the standard library of the target is installed. Says so otherwise.
fn check_if_installed(runner: &mut Runner) -> Result<()> {
    if !is_target_installed(TARGET) {
        writeln!(runner.output, "skipped, without: rustup target add {TARGET}")?;
        return Ok(());
    }
    runner.run(&mut for_target(["check", "--target", TARGET]))
}

/// Makes sure of the standard library for a target.
pub fn need_target(target: &str, runner: &mut Runner) -> Result<()> {
    if is_target_installed(target) {
        return Ok(());
    }
    runner.run(Command::new("rustup").args(["target", "add", target])).with_context(|| {
        format!("this machine lacks Rust's standard library for {target}, and cannot get it")
    })
}

fn is_target_installed(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    let output = rustc.args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}

/// Returns a command of cargo that builds for the target, in a folder of its own.
fn for_target<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = cargo(arguments);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    command.env("CARGO_TARGET_DIR", target_folder().join("arm"));
    command
}

/// Returns the command that runs a test of guests with AArch64 kernels.
fn guests(test: &str) -> Command {
    let mut command = cargo(["test", "--features", OPTIONAL_TESTS, "--test", test, "--"]);
    command.env("URXE_KERNEL_ARCH", "aarch64");
    command
}

/// Builds the tests for the target. Returns the path of the list that `in_guest` reads.
fn build_tests() -> Result<String> {
    let mut build = for_target(["test", "--workspace", "--no-run", "--target", TARGET]);
    for package in WITHOUT_TESTS {
        build.args(["--exclude", package]);
    }
    build.args(["--lib", "--bins", "--tests", "--message-format", "json-render-diagnostics"]);
    println!("\n$ {build:?}");
    let output = build.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the tests do not compile for {TARGET}");
    }
    let mut lines = BTreeSet::new();
    for message in String::from_utf8_lossy(&output.stdout).lines() {
        lines.extend(test_of(&serde_json::from_str(message)?));
    }
    let list = target_folder().join("arm/tests.list");
    fs::write(&list, lines.into_iter().collect::<String>())?;
    Ok(list.display().to_string())
}

/// Returns the line of a test program from a message of cargo.
fn test_of(message: &Value) -> Option<String> {
    let executable = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?;
    let (package, name) = (folder.file_name()?.to_str()?, message["target"]["name"].as_str()?);
    Some(format!("{package}::{name}\t{}\t{executable}\n", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_has_a_line_and_a_library_has_none() {
        let test = serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": "/checkout/wire/Cargo.toml",
            "target": {"name": "urxe_wire"}, "profile": {"test": true}, "executable": "/target/w-1",
        });
        assert_eq!(
            test_of(&test).as_deref(),
            Some("wire::urxe_wire\t/checkout/wire\t/target/w-1\n")
        );
        for (key, value) in [("executable", Value::Null), ("profile", serde_json::json!({}))] {
            let mut other = test.clone();
            other[key] = value;
            assert_eq!(test_of(&other), None, "{key}");
        }
    }
}
