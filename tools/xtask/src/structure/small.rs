//! Small files: a Rust file with fewer than 60 lines needs a reason.
//!
//! Module roots, the tests of a module, programs that must not compile, fuzz targets and test data
//! may be small. Every other small file has a row `path: reason` in `tools/xtask/small-files.txt`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;

use super::tracked;
use crate::run::root;

/// The lines from which a file needs no reason.
const MIN_LINES: usize = 60;
/// The list of small files with their reasons.
const LIST: &str = "tools/xtask/small-files.txt";

/// File names that may be small.
const NAMES: [&str; 5] = ["build.rs", "lib.rs", "main.rs", "mod.rs", "tests.rs"];
/// Folders whose files may be small.
const FOLDERS: [&str; 3] = ["compile_fail", "fuzz_targets", "testdata"];

/// Returns a line for each small file without a reason and for each row without a small file.
pub fn check() -> Result<Vec<String>> {
    let mut lines = BTreeMap::new();
    for file in tracked(&["*.rs"])? {
        let count = fs::read_to_string(root().join(&file))?.lines().count();
        lines.insert(file.display().to_string(), count);
    }
    Ok(faults(&lines, &fs::read_to_string(root().join(LIST))?))
}

/// Compares the files, by their numbers of lines, with the rows of the list.
fn faults(lines: &BTreeMap<String, usize>, list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut listed = BTreeMap::new();
    for (row, number) in list.lines().zip(1..) {
        match row.split_once(": ") {
            Some((file, reason)) if !reason.trim().is_empty() => {
                listed.insert(file, number);
            }
            _ => found.push(format!("{LIST}:{number}: expected `path: reason`, found {row:?}")),
        }
    }
    for (file, count) in lines {
        let is_small = *count < MIN_LINES && !may_be_small(file);
        match (is_small, listed.remove(file.as_str())) {
            (true, None) => found.push(format!(
                "{file}: {count} lines, fewer than {MIN_LINES}: merge it into the file that uses \
                 it, or give a reason in {LIST}"
            )),
            (false, Some(number)) => {
                found.push(format!("{LIST}:{number}: remove {file}, which needs no reason"));
            }
            _ => {}
        }
    }
    found.extend(
        listed
            .iter()
            .map(|(file, number)| format!("{LIST}:{number}: remove {file}, which is gone")),
    );
    found
}

fn may_be_small(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    NAMES.contains(&parts.next().unwrap_or_default()) || parts.any(|part| FOLDERS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the faults of files with these numbers of lines.
    fn found(files: &[(&str, usize)], list: &str) -> Vec<String> {
        let lines = files.iter().map(|(file, count)| ((*file).to_owned(), *count)).collect();
        faults(&lines, list)
    }

    #[test]
    fn a_small_file_without_a_reason_is_found() {
        let [fault] = &found(&[("a/one.rs", 59), ("a/two.rs", 60)], "")[..] else { panic!() };
        assert!(fault.starts_with("a/one.rs: 59 lines, "), "{fault}");
        assert!(found(&[("a/one.rs", 59)], "a/one.rs: used by two crates\n").is_empty());
    }

    #[test]
    fn roots_tests_and_samples_may_be_small() {
        let files = [
            "a/lib.rs",
            "a/main.rs",
            "a/mod.rs",
            "build.rs",
            "a/b/tests.rs",
            "a/compile_fail/send.rs",
            "fuzz/fuzz_targets/mad.rs",
            "a/testdata/low/deep.rs",
        ];
        assert!(found(&files.map(|file| (file, 1)), "").is_empty());
        assert_eq!(found(&[("a/my_tests.rs", 1), ("a/testdata.rs", 1)], "").len(), 2);
    }

    #[test]
    fn a_row_whose_file_is_gone_or_has_grown_is_found() {
        let list = "a/gone.rs: reason\na/grown.rs: reason\na/mod.rs: reason\n";
        let expected = [
            format!("{LIST}:2: remove a/grown.rs, which needs no reason"),
            format!("{LIST}:3: remove a/mod.rs, which needs no reason"),
            format!("{LIST}:1: remove a/gone.rs, which is gone"),
        ];
        assert_eq!(found(&[("a/grown.rs", 60), ("a/mod.rs", 5)], list), expected);
    }

    #[test]
    fn a_row_without_a_reason_is_found() {
        let faults = found(&[("a/one.rs", 5)], "a/one.rs: \n");
        assert_eq!(faults[0], format!("{LIST}:1: expected `path: reason`, found \"a/one.rs: \""));
        assert_eq!(faults.len(), 2, "and the file still lacks one");
    }
}
