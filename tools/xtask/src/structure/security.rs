//! SECURITY.md names tests and files that exist.
//!
//! The page names a test by its file and its function, each in backticks. Further functions of the
//! same file may follow:
//!
//! ```text
//! | CVE-2026-46043 | … | `wire/tests/malformed.rs` `pad_underflow`, `one_packet_panics` |
//! ```
//!
//! A file without a function stands for a structural reason. The row of a CVE has one of the two,
//! or the words "not applicable".

use std::fs;

use anyhow::Result;

use crate::run::root;

const PAGE: &str = "SECURITY.md";

/// Returns a line for each file and each test that the page names and that does not exist, and for
/// each row of a CVE that names none.
pub fn check() -> Result<Vec<String>> {
    let page = fs::read_to_string(root().join(PAGE))?;
    Ok(faults(&page, |file| fs::read_to_string(root().join(file)).ok()))
}

/// Compares the page with the source files, which `read` returns by their paths.
fn faults(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (line, number) in page.lines().zip(1..) {
        let named = references(line);
        for Reference { file, tests } in &named {
            let Some(text) = read(file) else {
                found.push(format!("{PAGE}:{number}: there is no file {file}"));
                continue;
            };
            let missing = tests.iter().filter(|test| !text.contains(&format!("fn {test}(")));
            found.extend(
                missing.map(|test| format!("{PAGE}:{number}: {file} has no function {test}")),
            );
        }
        let is_cve = line.starts_with("| CVE-");
        if is_cve && named.is_empty() && !line.contains("not applicable") {
            found
                .push(format!("{PAGE}:{number}: name a test or a file, or say \"not applicable\""));
        }
    }
    found
}

/// A file that a line names, with the tests that follow it.
#[derive(Debug, PartialEq, Eq)]
struct Reference<'a> {
    file: &'a str,
    tests: Vec<&'a str>,
}

/// Returns the files of a line with their tests.
fn references(line: &str) -> Vec<Reference<'_>> {
    let mut found: Vec<Reference<'_>> = Vec::new();
    // Whether the next word in backticks may be a test of the last file.
    let mut follows = false;
    // Parts with odd numbers are in backticks.
    for (nr, part) in line.split('`').enumerate() {
        if nr % 2 == 0 {
            follows &= matches!(part, " " | ", " | " and ");
        } else if part.ends_with(".rs") && part.contains('/') {
            found.push(Reference { file: part, tests: Vec::new() });
            follows = true;
        } else if let Some(last) = found.last_mut().filter(|_| follows) {
            last.tests.push(part);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> Option<String> {
        (file == "a/b.rs").then(|| "#[test]\nfn one_holds() {}\nfn two_hold() {}\n".to_owned())
    }

    #[test]
    fn each_missing_file_and_test_is_found() {
        let page = "`a/b.rs` `one_holds`, `two_hold` and `three_hold`\n`a/c.rs` `one_holds`\n\
                    | CVE-1 | flaw | `a/b.rs` `one_hold` |\n";
        let expected = [
            "SECURITY.md:1: a/b.rs has no function three_hold",
            "SECURITY.md:2: there is no file a/c.rs",
            "SECURITY.md:3: a/b.rs has no function one_hold",
        ];
        assert_eq!(faults(page, read), expected);
    }

    #[test]
    fn the_row_of_a_cve_has_a_test_a_file_or_no_application() {
        let page = "| CVE-1 | flaw | `a/b.rs` `one_holds` |\n| CVE-2 | flaw | `a/b.rs`: why |\n\
                    | CVE-3 | flaw | not applicable: why |\n| CVE-4 | flaw | |\n| word | |\n";
        let missing = "SECURITY.md:4: name a test or a file, or say \"not applicable\"";
        assert_eq!(faults(page, read), [missing]);
    }

    #[test]
    fn other_words_in_backticks_are_no_tests() {
        let named =
            references("`a/b.rs`: a `Device` has `max_qp`; `lib.rs` and `x` `a/c.rs` `t_1`");
        let expected = [
            Reference { file: "a/b.rs", tests: vec![] },
            Reference { file: "a/c.rs", tests: vec!["t_1"] },
        ];
        assert_eq!(named, expected);
    }
}
