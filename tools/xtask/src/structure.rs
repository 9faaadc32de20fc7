//! Checks of the structure that the compiler does not make: the crates and modules that each crate
//! and module may use, sizes of files, lengths of lines, language, spelling.

pub mod crates;
pub mod lines;
pub mod modules;
pub mod prose;
pub mod small;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use cargo_metadata::{Metadata, MetadataCommand};

use crate::run::root;

/// Returns the metadata of the workspace's packages.
fn metadata() -> Result<Metadata> {
    Ok(MetadataCommand::new().no_deps().manifest_path(root().join("Cargo.toml")).exec()?)
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
    let output = Command::new("typos").current_dir(root()).args(["--format", "brief"]).output()?;
    let faults: Vec<_> = String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
    let is_done = output.status.success() || !faults.is_empty();
    ensure!(is_done, "typos: {}", String::from_utf8_lossy(&output.stderr));
    Ok(faults)
}
