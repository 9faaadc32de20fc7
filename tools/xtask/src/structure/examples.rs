//! Examples in the documentation: each public type of the crate `urxe` stands in an example that
//! runs, and each internal library has an example on its crate page.
//!
//! The check reads texts. It collects the types that the root files of the public modules define or
//! re-export, and the visible lines of the examples in the documentation of the crate. `cargo test`
//! runs these examples. Blocks with an attribute, such as `no_run` or `text`, do not count.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;

use super::{root_files, tracked};
use crate::run::root;

/// The files that define the public paths of the crate.
const MODULES: [&str; 6] = [
    "verbs-api/rust/src/lib.rs",
    "verbs-api/rust/src/aio/mod.rs",
    "verbs-api/rust/src/cm/mod.rs",
    "verbs-api/rust/src/link.rs",
    "verbs-api/rust/src/sim/mod.rs",
    "verbs-api/rust/src/stream/mod.rs",
];
/// The sources whose documentation has the examples.
const SOURCES: &str = "verbs-api/rust/src/*.rs";

/// Packages whose crate page needs no example.
const FREE: [&str; 8] = [
    // C libraries: no Rust program can call them. Their examples are programs in C.
    "urxe-abi",
    "urxe-sysfs",
    // Programs and tests.
    "urxe-compile-fail",
    "urxe-fuzz",
    "urxe-manual",
    "urxe-tests",
    "urxe-tools",
    "xtask",
];

/// Returns a line for each public type and each crate page without an example.
pub fn check() -> Result<Vec<String>> {
    let mut found = types()?;
    for (package, file) in root_files(&FREE)? {
        let text = fs::read_to_string(&file)?;
        let page: String =
            text.lines().filter(|l| l.starts_with("//!")).collect::<Vec<_>>().join("\n");
        if words_of_examples(&page).is_empty() {
            found.push(format!("{package}: the crate page has no example that runs"));
        }
    }
    Ok(found)
}

/// Returns a line for each public type without an example.
fn types() -> Result<Vec<String>> {
    let mut shown = BTreeSet::new();
    for file in tracked(&[SOURCES])? {
        shown.extend(words_of_examples(&fs::read_to_string(root().join(file))?));
    }
    let mut found = Vec::new();
    for module in MODULES {
        let text = fs::read_to_string(root().join(module))?;
        let missing = public_types(&text).into_iter().filter(|name| !shown.contains(name));
        found.extend(missing.map(|name| {
            format!("{module}: no example uses {name}: add it to a running example of its page")
        }));
    }
    Ok(found)
}

/// Returns the names of the types that a module defines with `pub` or re-exports with `pub use`.
fn public_types(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for (at, keyword) in code.match_indices("pub ") {
        let (kind, rest) = code[at + keyword.len()..].split_once(' ').unwrap_or_default();
        match kind {
            "use" => names.extend(re_exports(rest.split(';').next().unwrap_or_default())),
            "struct" | "enum" | "union" | "trait" | "type" => names.extend(words(rest).next()),
            _ => {}
        }
    }
    names.retain(|name| is_type(name));
    names
}

/// Returns the public names of a `use` declaration.
fn re_exports(declaration: &str) -> impl Iterator<Item = String> {
    let list = match declaration.split_once('{') {
        Some((_, list)) => list.trim_end_matches('}'),
        None => declaration,
    };
    list.split(',').filter_map(|item| words(item).last())
}

/// Returns the words of the visible lines of a source file's examples.
fn words_of_examples(text: &str) -> BTreeSet<String> {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
        Some(comment.strip_prefix(' ').unwrap_or(comment))
    });
    let mut shown = BTreeSet::new();
    // The attributes of the block, inside a block.
    let mut block = None;
    for line in comments {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(attributes), None) => block = Some(attributes),
            (Some(_), Some(_)) => block = None,
            (None, Some("")) if line != "#" && !line.starts_with("# ") => shown.extend(words(line)),
            _ => {}
        }
    }
    shown
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Returns whether the name is that of a type, not of a constant, a function or a module.
fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_in_definitions_and_re_exports() {
        let text = "//! pub struct Comment\npub use a::{First, Other as Second, function};\n\
                    pub use b::Third;\npub(crate) use c::Internal;\npub struct Fourth<T>(T);\n\
                    pub enum Fifth { Variant }\npub mod module;\npub use d::{\n Sixth, MAX,\n};\n\
                    pub fn call(x: Argument) {}\nstruct Private;\n";
        let found: Vec<_> = public_types(text).into_iter().collect();
        assert_eq!(found, ["Fifth", "First", "Fourth", "Second", "Sixth", "Third"]);
    }

    #[test]
    fn only_visible_lines_of_running_examples_count() {
        let text = "//! Outside\n//! ```\n//! Shown::new();\n//! # Hidden\n//! #[Attribute]\n\
                    //! ```\n//! After\n    /// ```no_run\n    /// Idle\n    /// ```\n\
                    /// ```text\n/// Text\n/// ```\nCode\n/// ```\n/// Second\n/// ```\n";
        let found: Vec<_> = words_of_examples(text).into_iter().collect();
        assert_eq!(found, ["Attribute", "Second", "Shown", "new"]);
    }
}
