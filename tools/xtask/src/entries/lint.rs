//! Formatting, structure, lints, documentation.

use anyhow::{Result, bail};

use super::none;
use crate::run::{Runner, cargo, script, target_folder};
use crate::structure::{
    crates, deny, environment, examples, has_deny, lines, links, modules, prose, public, publish,
    security, small, typos, typos_program,
};

/// The optional features, except for the fuzz targets, which need a C++ compiler.
const FEATURES: &str =
    "urxe/futures,urxe/serde,urxe/stream,urxe/tokio,urxe-tests/kernel-peers,urxe-tests/programs";

/// Sets of features that replace the default ones of `urxe` and `urxe-stack`: none, and each
/// feature without those that its code could need. They have no `urxe/`: tests of `urxe` depend on
/// `urxe`, and with `-p urxe` cargo gives such a feature to that dependency.
const FEATURE_SETS: [&str; 4] = ["", "capture,serde,stream,tokio", "capture,cm", "serde,sim"];

/// Features without which some modules are absent, to which the documentation must not link then.
const DOC_SETS: [&str; 3] = ["", "cm", "sim"];

/// The optional features of `urxe`, whose public items are checked, too.
const OPTIONAL_FEATURES: &str = "futures,serde,stream,tokio";

/// The crate `urxe` first, and the crates whose types it re-exports.
const LAYERS: [&str; 9] = [
    "urxe",
    "urxe-stack",
    "urxe-cm",
    "urxe-device",
    "urxe-io",
    "urxe-memory",
    "urxe-sim",
    "urxe-types",
    "urxe-wire",
];

/// Checks the formatting.
pub fn fmt(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    runner.run(&mut cargo(["fmt", "--all", "--check"]))
}

/// A check's name, and the function that returns a line for each fault.
type Check = (&'static str, fn() -> Result<Vec<String>>);

const CHECKS: [Check; 12] = [
    ("crates", crates::check),
    ("publish", publish::check),
    ("modules", modules::check),
    ("environment", environment::check),
    ("examples", examples::check),
    ("lines", lines::check),
    ("links", links::check),
    ("small", small::check),
    ("prose", prose::check),
    ("security", security::check),
    ("typos", typos),
    ("deny", deny),
];

/// A check by a program that may be missing: whether the program is there, and its package.
type Optional = (&'static str, fn() -> bool, &'static str);

const OPTIONAL: [Optional; 2] =
    [("typos", || typos_program().is_some(), "typos-cli"), ("deny", has_deny, "cargo-deny")];

/// Runs all checks, or the named one; each counts as a test.
pub fn structure(arguments: &[String], runner: &mut Runner) -> Result<()> {
    if arguments.iter().any(|name| CHECKS.iter().all(|(check, _)| check != name)) {
        let names = CHECKS.map(|(name, _)| name).join(", ");
        bail!("unknown arguments {arguments:?}; allowed: {names}, or none");
    }
    for (name, check) in CHECKS {
        if !arguments.is_empty() && arguments.iter().all(|argument| argument != name) {
            continue;
        }
        let missing = OPTIONAL.iter().find(|(check, is_there, _)| *check == name && !is_there());
        if let Some((_, _, package)) = missing {
            writeln!(
                runner.output,
                "structure {name}: skipped, because the program is not installed: cargo install \
                 {package} --locked"
            )?;
            continue;
        }
        let faults = check()?;
        for fault in &faults {
            writeln!(runner.output, "{fault}")?;
        }
        writeln!(runner.output, "structure {name}: {} faults", faults.len())?;
        match faults.is_empty() {
            true => runner.tally.passed += 1,
            false => runner.tally.failed += 1,
        }
    }
    if runner.tally.failed > 0 {
        bail!("see the rules in ARCHITECTURE.md and CONTRIBUTING.md")
    }
    Ok(())
}

/// Lints libraries, binaries, tests, benches and examples, and `urxe` with few features.
pub fn clippy(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let all = ["clippy", "--workspace", "--all-targets", "--features", FEATURES];
    runner.run(cargo(all).args(["--", "-D", "warnings"]))?;
    for features in FEATURE_SETS {
        let few = ["clippy", "-p", "urxe", "-p", "urxe-stack", "--no-default-features"];
        runner.run(cargo(few).args(["--features", features, "--", "-D", "warnings"]))?;
    }
    let tests = ["clippy", "-p", "urxe", "--no-default-features", "--all-targets"];
    runner.run(cargo(tests).args(["--", "-D", "warnings"]))
}

/// Builds the documentation, and checks the names in the public interface of `urxe`.
pub fn doc(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    // First, so that the pages of all features are there in the end.
    for features in DOC_SETS {
        let few = ["doc", "-p", "urxe", "--no-deps", "--no-default-features", "--features"];
        runner.run(cargo(few).arg(features).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    runner.run(cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    // Only rustdoc is unstable here. Cargo would build the dependencies again if it were, too.
    let rustdoc = script("rustdoc-unstable", "RUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"")?;
    let (own, others) = LAYERS.split_at(1);
    for (layers, features) in [(own, OPTIONAL_FEATURES), (others, "")] {
        let mut json = cargo(["doc", "--no-deps", "--features", features]);
        json.args(layers.iter().flat_map(|name| ["-p", name])).env("RUSTDOC", &rustdoc);
        runner.run(json.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json"))?;
    }
    let faults = public::Docs::read(&target_folder().join("doc"), &LAYERS)?.faults();
    if !faults.is_empty() {
        bail!("re-export these types from `urxe`, or do not mention them:\n{}", faults.join("\n"));
    }
    Ok(())
}
