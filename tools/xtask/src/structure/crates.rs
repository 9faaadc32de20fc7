//! The arrows between the workspace's crates, held against a table.

use anyhow::Result;
use cargo_metadata::DependencyKind;

use super::metadata;

/// The workspace crates that each crate may use outside its tests. ARCHITECTURE.md has the reasons.
const MAY_USE: &[(&str, &[&str])] = &[
    ("urxe-wire", &[]),
    ("urxe-types", &["urxe-wire"]),
    ("urxe-memory", &["urxe-types", "urxe-wire"]),
    ("urxe-device", &["urxe-memory", "urxe-types", "urxe-wire"]),
    ("urxe-cm", &["urxe-types", "urxe-wire"]),
    ("urxe-sim", &["urxe-device", "urxe-types", "urxe-wire"]),
    ("urxe-io", &["urxe-types", "urxe-wire"]),
    ("urxe-stack", STACK),
    ("urxe", &["urxe-stack", "urxe-wire"]),
    ("urxe-compile-fail", &["urxe"]),
    ("urxe-rsocket", &["urxe-stack", "urxe-wire"]),
    ("urxe-abi", &["urxe-rsocket", "urxe-stack", "urxe-wire"]),
    ("urxe-sysfs", &[]),
    ("urxe-tools", &["urxe", "urxe-stack", "urxe-wire"]),
    ("urxe-test-support", &["urxe", "urxe-device", "urxe-memory", "urxe-types", "urxe-wire"]),
    ("urxe-tests", &["urxe", "urxe-stack", "urxe-test-support", "urxe-wire"]),
    ("urxe-fuzz", &["urxe-rsocket", "urxe-stack", "urxe-test-support", "urxe-tools", "urxe-wire"]),
    ("xtask", &[]),
];

/// The layers that the driver joins.
const STACK: &[&str] =
    &["urxe-cm", "urxe-device", "urxe-io", "urxe-memory", "urxe-sim", "urxe-types", "urxe-wire"];

/// Returns a line for each arrow that the table does not have.
pub fn check() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let names: Vec<&str> = metadata.packages.iter().map(|package| &**package.name).collect();
    let mut arrows = Vec::new();
    for package in &metadata.packages {
        let normal = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        let own = normal.filter(|dependency| names.contains(&&*dependency.name));
        arrows.extend(own.map(|dependency| (&**package.name, &*dependency.name)));
    }
    Ok(faults(MAY_USE, &names, &arrows))
}

fn faults(table: &[(&str, &[&str])], names: &[&str], arrows: &[(&str, &str)]) -> Vec<String> {
    let row = |name: &str| table.iter().find(|(user, _)| *user == name).map(|(_, used)| *used);
    let unknown = names.iter().filter(|name| row(name).is_none());
    let unknown = unknown.map(|name| format!("{name} has no row in {}", file!()));
    let wrong =
        arrows.iter().filter(|(user, used)| row(user).is_some_and(|row| !row.contains(used)));
    unknown.chain(wrong.map(|(user, used)| format!("{user} must not use {used}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reversed_arrow_and_an_unknown_crate_are_found() {
        let table: &[(&str, &[&str])] = &[("low", &[]), ("high", &["low"])];
        assert!(faults(table, &["low", "high"], &[("high", "low")]).is_empty());
        let found = faults(table, &["low", "high", "new"], &[("high", "low"), ("low", "high")]);
        assert!(found[0].starts_with("new has no row in "));
        assert_eq!(found[1..], ["low must not use high"]);
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Each row uses only rows above.
        for (at, (user, used)) in MAY_USE.iter().enumerate() {
            for name in *used {
                assert!(MAY_USE[..at].iter().any(|(above, _)| above == name), "{user}: {name}");
            }
        }
    }
}
