//! The copyright file of packages: the licence of the project, and those of the crates whose code
//! the packages contain.
//!
//! The format is DEP-5. The licences of the crates ask for their notices. Procedural macros and
//! build scripts are not part of a package. The features are those of the whole workspace, so the
//! file may name a crate too many.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};

use super::elf::Machine;
use crate::run::root;

/// The delivered packages.
const DELIVERED: [&str; 3] = ["urxe-abi", "urxe-sysfs", "urxe-tools"];
/// Licences of which one is chosen, if a crate offers it.
const CHOSEN: [&str; 2] = ["MIT", "Apache-2.0"];
/// Licences whose texts are part of Debian.
const COMMON: [&str; 2] = ["Apache-2.0", "MPL-2.0"];

/// Returns the file.
pub fn text(machine: Machine) -> Result<String> {
    let target = format!("{}-unknown-linux-gnu", machine.rust);
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    let metadata = command.other_options(["--filter-platform".to_owned(), target]).exec()?;
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: urxe\nSource: {}\n\nFiles: *\nCopyright: 2026 The urxe authors\n\
         License: MIT or Apache-2.0\nComment:\n The programs and libraries contain code of the \
         crates below.\n\nFiles: rust-std/*\nCopyright: The Rust Project contributors\n\
         License: MIT\nComment: the standard library of Rust\n",
        env!("CARGO_PKG_REPOSITORY")
    );
    let mut licences = BTreeMap::from([("MIT".to_owned(), None), ("Apache-2.0".to_owned(), None)]);
    for package in linked(&metadata)? {
        let licence = chosen(package.license.as_deref().unwrap_or("unknown"));
        let files = licence_files(package);
        text.push_str(&format!(
            "\nFiles: crates/{}-{}/*\nCopyright: {}\nLicense: {licence}\n",
            package.name,
            package.version,
            notices(package, &files).join("\n ")
        ));
        licences.entry(licence).or_insert_with(|| Some(files.join("\n")));
    }
    let own = fs::read_to_string(root().join("LICENSE-MIT"))?;
    for (licence, files) in licences {
        let body = match (&*licence, files) {
            (name, _) if COMMON.contains(&name) => {
                format!("On Debian systems, the text is in /usr/share/common-licenses/{name}.")
            }
            (_, Some(files)) => files,
            // The notices are above.
            _ => own.lines().skip(4).collect::<Vec<_>>().join("\n"),
        };
        text.push_str(&format!("\nLicense: {licence}\n{}\n", indented(&body)));
    }
    Ok(text)
}

/// Returns the foreign crates whose code the delivered packages contain.
fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata has no graph")?;
    let own = metadata.workspace_packages();
    let mut open: Vec<&PackageId> = own
        .iter()
        .filter(|package| DELIVERED.contains(&&**package.name))
        .map(|package| &package.id)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        let is_macro = metadata[id].targets.iter().any(|t| t.kind.contains(&TargetKind::ProcMacro));
        if is_macro || !seen.insert(id) {
            continue;
        }
        let node =
            resolve.nodes.iter().find(|node| node.id == *id).context("an incomplete graph")?;
        let normal = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        });
        open.extend(normal.map(|dependency| &dependency.pkg));
    }
    let mut found: Vec<&Package> = seen.into_iter().map(|id| &metadata[id]).collect();
    found.retain(|package| !metadata.workspace_members.contains(&package.id));
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(found)
}

/// Returns the licence that is chosen from an expression of SPDX, or the expression.
fn chosen(expression: &str) -> String {
    let offered: Vec<&str> = expression.split('/').flat_map(|part| part.split(" OR ")).collect();
    let offered: Vec<&str> = offered.iter().map(|licence| licence.trim()).collect();
    let found = CHOSEN.iter().find(|licence| offered.contains(licence));
    found.map_or_else(|| expression.to_owned(), |licence| (*licence).to_owned())
}

/// Returns the texts of a crate's files about its licence.
fn licence_files(package: &Package) -> Vec<String> {
    let folder = package.manifest_path.parent().map(|folder| folder.as_std_path());
    let entries = folder.and_then(|folder: &Path| fs::read_dir(folder).ok());
    let mut files: Vec<_> = entries.into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["LICEN", "COPYING", "COPYRIGHT", "NOTICE"].iter().any(|begin| name.starts_with(begin))
    });
    files.sort();
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// Returns the notices of a crate, or else its authors.
fn notices(package: &Package, files: &[String]) -> Vec<String> {
    let lines = files.iter().flat_map(|file| file.lines()).map(str::trim);
    let is_notice = |line: &&str| {
        line.starts_with("Copyright") && line.contains(|c: char| c.is_ascii_digit() || c == '©')
    };
    let mut found: Vec<String> = lines.filter(is_notice).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        found = package.authors.clone();
    }
    if found.is_empty() {
        found.push(format!("The authors of {}", package.name));
    }
    found
}

/// Returns lines as the continuation of a field.
fn indented(text: &str) -> String {
    let line = |line: &str| if line.trim().is_empty() { " .".into() } else { format!(" {line}") };
    text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_licences_is_chosen() {
        assert_eq!(chosen("Apache-2.0 OR MIT"), "MIT");
        assert_eq!(chosen("MIT/Apache-2.0"), "MIT");
        assert_eq!(chosen("Apache-2.0"), "Apache-2.0");
        assert_eq!(
            chosen("(MIT OR Apache-2.0) AND Unicode-3.0"),
            "(MIT OR Apache-2.0) AND Unicode-3.0"
        );
    }

    #[test]
    fn fields_continue_with_blanks() {
        assert_eq!(indented("a\n\nb\n"), " a\n .\n b");
    }
}
