//! Checks of the structure that the compiler does not make: the crates and modules that each crate
//! and module may use, readers of environment variables, sizes of files, lengths of lines,
//! language, spelling, links of pages, licences and sources of dependencies, examples of the Rust
//! API, the tests that SECURITY.md names, names in the public interface of `urxe`, and the fields
//! that a registry needs.

pub mod crates;
pub mod environment;
pub mod examples;
pub mod lines;
pub mod links;
pub mod modules;
pub mod prose;
pub mod public;
pub mod publish;
pub mod security;
pub mod small;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand, TargetKind};

use crate::machine::{is_root, need_packages, succeeds};
use crate::run::{Runner, cargo, root, target_folder};

/// Returns the metadata of the workspace's packages.
fn metadata() -> Result<Metadata> {
    Ok(MetadataCommand::new().no_deps().manifest_path(root().join("Cargo.toml")).exec()?)
}

/// Returns the package and the root file of each library and program, except those of the packages
/// `free`.
fn root_files(free: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let kinds = [TargetKind::Lib, TargetKind::CDyLib, TargetKind::Bin];
    let mut files = Vec::new();
    for package in metadata()?.packages.iter().filter(|package| !free.contains(&&**package.name)) {
        for target in &package.targets {
            if kinds.iter().any(|kind| target.kind.contains(kind)) {
                files.push((package.name.to_string(), target.src_path.clone().into()));
            }
        }
    }
    Ok(files)
}

/// Returns the tracked files with one of these endings, relative to the root.
pub fn tracked(endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("git");
    command.current_dir(root()).args(["ls-files", "-z", "--cached", "--others"]);
    let output = command.args(["--exclude-standard", "--"]).args(endings).output()?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout)?;
    let files = names.split_terminator('\0').map(PathBuf::from);
    Ok(files.filter(|file| root().join(file).is_file()).collect())
}

/// Returns a line for each misspelled word that `typos` finds; `_typos.toml` has the exceptions.
pub fn typos() -> Result<Vec<String>> {
    let mut command = Command::new(typos_program().context("typos is not installed")?);
    let output = command.current_dir(root()).args(["--format", "brief"]).output()?;
    let faults: Vec<_> = String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
    let is_done = output.status.success() || !faults.is_empty();
    ensure!(is_done, "typos: {}", String::from_utf8_lossy(&output.stderr));
    Ok(faults)
}

/// Returns a line for each fault of the dependencies that `cargo deny` finds; `deny.toml` has the
/// rules. The database of advisories is not read, because it needs the network.
pub fn deny() -> Result<Vec<String>> {
    let mut command = cargo(["deny", "--offline", "--color", "never", "check"]);
    command.args(["--hide-inclusion-graph", "bans", "licenses", "sources"]);
    let output = command.current_dir(root()).output()?;
    let printed = String::from_utf8(output.stderr)?;
    let is_fault = |line: &&str| line.starts_with("error");
    let faults: Vec<_> = printed.lines().filter(is_fault).map(str::to_owned).collect();
    ensure!(output.status.success() || !faults.is_empty(), "cargo deny: {printed}");
    Ok(faults)
}

/// Returns whether `cargo deny` is installed.
pub fn has_deny() -> bool {
    succeeds("cargo", &["deny", "--version"])
}

/// The release of `typos` that CI installs.
const TYPOS: &str = "typos==1.52.0";

/// Returns the program `typos`: from PATH, or from the target folder.
pub fn typos_program() -> Option<PathBuf> {
    let own = target_folder().join("typos/bin/typos");
    [PathBuf::from("typos"), own].into_iter().find(|program| succeeds(program, &["--version"]))
}

/// Installs `typos` into the target folder if it is missing. Only root installs, because the
/// package `python3-pip` may be missing as well.
pub fn need_typos(runner: &mut Runner) -> Result<()> {
    if typos_program().is_some() || !is_root() {
        return Ok(());
    }
    need_packages(&["python3-pip"], runner)?;
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--target"]);
    runner.run(command.arg(target_folder().join("typos")).arg(TYPOS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use pulldown_cmark::{Event, Parser, Tag, TagEnd};

    use super::*;

    /// Variables that a program sets for its child processes.
    const INTERNAL: [&str; 3] = ["URXE_BENCH_MEMORY", "URXE_BENCH_ROLE", "URXE_TEST_"];

    #[test]
    fn each_environment_variable_has_a_row() {
        let page = fs::read_to_string(root().join("docs/environment.md")).unwrap();
        let mut missing = BTreeSet::new();
        for file in tracked(&["*.rs", "*.sh"]).unwrap() {
            let text = fs::read_to_string(root().join(file)).unwrap();
            for part in text.split(|c: char| !(c.is_ascii_uppercase() || c == '_')) {
                let is_internal = INTERNAL.iter().any(|internal| part.starts_with(internal));
                let is_variable = part.starts_with("URXE_") && part.len() > "URXE_".len();
                if is_variable && !is_internal && !page.contains(&format!("| `{part}` |")) {
                    missing.insert(part.to_owned());
                }
            }
        }
        assert!(missing.is_empty(), "docs/environment.md has no row for {missing:?}");
    }

    /// Texts of other programs in the headings of docs/troubleshooting.md.
    const FOREIGN: [&str; 8] = [
        "' from LD_PRELOAD cannot be preloaded",
        "ASan runtime does not come first",
        "Failed to get IB devices list: Function not implemented",
        "IB device 'mlx5_0' wasn't found",
        "No IB devices found",
        "fi_info -p verbs",
        "is not a supported wheel on this platform",
        "urxe pingpong",
    ];

    /// Returns the texts in the headings of a page, split at `…` and at the number of the port,
    /// which error messages have as an argument. Single words are no texts.
    fn error_texts(page: &str) -> BTreeSet<String> {
        let (mut texts, mut is_heading) = (BTreeSet::new(), false);
        for event in Parser::new(page) {
            match event {
                Event::Start(Tag::Heading { .. }) => is_heading = true,
                Event::End(TagEnd::Heading(_)) => is_heading = false,
                Event::Code(code) if is_heading => {
                    let code = code.replace("4791", "…");
                    let parts = code.split('…').map(str::trim).filter(|part| part.contains(' '));
                    texts.extend(parts.map(str::to_owned));
                }
                _ => {}
            }
        }
        texts
    }

    #[test]
    fn each_error_text_of_the_page_is_in_a_source() {
        let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
        let mut texts = error_texts(&page);
        assert!(texts.len() > 25, "{texts:?}");
        for foreign in FOREIGN {
            assert!(texts.remove(foreign), "remove {foreign} from FOREIGN");
        }
        for file in tracked(&["*.rs", "*.py"]).unwrap() {
            if !file.ends_with("tools/xtask/src/structure.rs") {
                let source = fs::read_to_string(root().join(file)).unwrap();
                // A text goes on behind a backslash at the end of a line.
                let mut source = source.lines().map(str::trim).collect::<Vec<_>>().join("\n");
                source = source.replace("\\\n", "");
                texts.retain(|text| !source.contains(text));
            }
        }
        assert!(texts.is_empty(), "no source prints {texts:#?}, which docs/troubleshooting.md has");
    }
}
