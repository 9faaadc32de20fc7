//! The arrows between the workspace's crates, held against a table, and the foreign crates of the
//! library, held against the table of ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::fs::read_to_string;

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
    ("urxe-rsocket", &["urxe-stack", "urxe-wire"]),
    ("urxe", &["urxe-rsocket", "urxe-stack", "urxe-wire"]),
    ("urxe-compile-fail", &["urxe"]),
    ("urxe-abi", &["urxe-rsocket", "urxe-stack", "urxe-wire"]),
    ("urxe-sysfs", &[]),
    ("urxe-tools", &["urxe", "urxe-stack", "urxe-wire"]),
    ("urxe-manual", &["urxe-tools"]),
    ("urxe-test-support", &["urxe", "urxe-device", "urxe-memory", "urxe-types", "urxe-wire"]),
    ("urxe-tests", &["urxe", "urxe-stack", "urxe-test-support", "urxe-wire"]),
    ("urxe-fuzz", &["urxe-rsocket", "urxe-stack", "urxe-test-support", "urxe-tools", "urxe-wire"]),
    ("xtask", &[]),
];

/// The layers that the driver joins.
const STACK: &[&str] =
    &["urxe-cm", "urxe-device", "urxe-io", "urxe-memory", "urxe-sim", "urxe-types", "urxe-wire"];

/// The crates of the workspace that are part of no library.
const NO_LIBRARY: &[&str] = &[
    "urxe-compile-fail",
    "urxe-tools",
    "urxe-manual",
    "urxe-test-support",
    "urxe-tests",
    "urxe-fuzz",
    "xtask",
];

/// Returns a line for each arrow that the table does not have, and for each foreign crate of a
/// library without a reason in ARCHITECTURE.md.
pub fn check() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let names: Vec<&str> = metadata.packages.iter().map(|package| &**package.name).collect();
    let (mut arrows, mut foreign) = (Vec::new(), BTreeSet::new());
    for package in &metadata.packages {
        let normal = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        let (own, others): (Vec<_>, Vec<_>) =
            normal.partition(|dependency| names.contains(&&*dependency.name));
        arrows.extend(own.iter().map(|dependency| (&**package.name, &*dependency.name)));
        if !NO_LIBRARY.contains(&&**package.name) {
            // loom is only in builds for its own tests.
            let built = others.iter().filter(|dependency| dependency.target.is_none());
            foreign.extend(built.map(|dependency| &*dependency.name));
        }
    }
    let page = read_to_string(metadata.workspace_root.join("ARCHITECTURE.md"))?;
    let mut found = faults(MAY_USE, &names, &arrows);
    found.extend(dependencies(&page, &foreign));
    Ok(found)
}

/// Returns a line for each foreign crate without a row in the page's table, and for each row
/// without a crate.
fn dependencies(page: &str, foreign: &BTreeSet<&str>) -> Vec<String> {
    let section = page.split("## Dependencies of the library").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<&str> = rows.collect();
    let missing = foreign.difference(&rows);
    let missing = missing.map(|name| format!("ARCHITECTURE.md gives no reason for {name}"));
    let stale = rows.difference(foreign);
    missing.chain(stale.map(|name| format!("ARCHITECTURE.md: no library uses {name}"))).collect()
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
    fn a_dependency_needs_a_reason_and_a_reason_a_dependency() {
        let page =
            "## Dependencies of the library\n| `a` | x | y |\n| `b` | x | y |\n## Next\n| `c` |";
        assert!(dependencies(page, &BTreeSet::from(["a", "b"])).is_empty());
        let found = dependencies(page, &BTreeSet::from(["a", "c"]));
        let expected =
            ["ARCHITECTURE.md gives no reason for c", "ARCHITECTURE.md: no library uses b"];
        assert_eq!(found, expected);
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
