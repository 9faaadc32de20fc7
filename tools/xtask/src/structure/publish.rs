//! The parts of each published crate that a registry needs: descriptions, a readme, licences, the
//! options of docs.rs, and versions of the crates that it uses.

use anyhow::Result;
use cargo_metadata::{DependencyKind, Package};

use super::metadata;

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Returns a line for each missing field, file and version of a published crate.
pub fn check() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let published: Vec<&Package> =
        metadata.packages.iter().filter(|each| is_published(each)).collect();
    let names: Vec<&str> = published.iter().map(|package| &**package.name).collect();
    Ok(published.iter().flat_map(|package| faults(package, &names)).collect())
}

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

fn faults(package: &Package, published: &[&str]) -> Vec<String> {
    let docs = &package.metadata["docs"]["rs"];
    let fields = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("repository", package.repository.is_some()),
        ("keywords", !package.keywords.is_empty()),
        ("categories", !package.categories.is_empty()),
        ("a readme", package.readme().is_some_and(|file| file.exists())),
        ("all-features for docs.rs", docs["all-features"] == true),
        // Other crates than urxe-wire compile for Linux only.
        ("targets for docs.rs", docs["targets"].is_array()),
    ];
    let missing = fields.into_iter().filter(|(_, exists)| !exists).map(|(field, _)| field);
    let folder = package.manifest_path.parent();
    let has_file = |name: &&str| folder.is_some_and(|folder| folder.join(name).exists());
    let missing = missing.chain(LICENCES.into_iter().filter(|name| !has_file(name)));
    let missing = missing.map(|what| format!("{} has no {what}", package.name));
    let used = package.dependencies.iter();
    let used = used.filter(|each| each.path.is_some() && each.kind != DependencyKind::Development);
    let unusable = used.filter_map(|each| {
        let has_version = !each.req.comparators.is_empty();
        let is_published = published.contains(&&*each.name);
        match (has_version, is_published) {
            (true, true) => None,
            (false, _) => Some(format!("{} uses {} without a version", package.name, each.name)),
            (_, false) => {
                Some(format!("{} uses {}, which is not published", package.name, each.name))
            }
        }
    });
    missing.chain(unusable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_part_is_found() {
        let metadata = metadata().unwrap();
        let of = |name: &str| metadata.packages.iter().find(|each| **each.name == *name).unwrap();
        let mut package = of("urxe-memory").clone();
        assert!(is_published(&package) && !is_published(of("xtask")));
        let published = ["urxe-types", "urxe-wire"];
        assert_eq!(faults(&package, &published), Vec::<String>::new());
        assert_eq!(
            faults(&package, &["urxe-wire"]),
            ["urxe-memory uses urxe-types, which is not published"]
        );
        package.metadata = Default::default();
        package.description = None;
        package.keywords.clear();
        package.readme = Some("MISSING.md".into());
        package.manifest_path = "/nowhere/Cargo.toml".into();
        let used = package.dependencies.iter_mut().find(|each| each.name == "urxe-wire").unwrap();
        used.req = "*".parse().unwrap();
        let found = faults(&package, &published);
        let expected = [
            "description",
            "keywords",
            "a readme",
            "all-features for docs.rs",
            "targets for docs.rs",
            "LICENSE-APACHE",
            "LICENSE-MIT",
        ];
        let mut expected = expected.map(|what| format!("urxe-memory has no {what}")).to_vec();
        expected.push("urxe-memory uses urxe-wire without a version".to_owned());
        assert_eq!(found, expected);
    }
}
