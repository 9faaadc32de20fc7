//! Checks that one function reads all environment variables.
//!
//! `urxe_io::sys::environment::value` ignores the variables of privileged programs. A call of
//! `std::env::var` in another file would read a variable that the caller of a setuid program chose.
//! Code under `#[cfg(test)]` and the crates of the tests are free.

use std::path::Path;

use anyhow::Result;

use super::{modules, root_files};

/// The last two words of the paths of functions that read variables.
const READERS: [[&str; 2]; 6] = [
    ["env", "var"],
    ["env", "var_os"],
    ["env", "vars"],
    ["env", "vars_os"],
    ["libc", "getenv"],
    ["libc", "secure_getenv"],
];

/// The files that read variables, with the reason.
const ALLOWED: [(&str, &str); 3] = [
    ("stack/io/src/sys/environment.rs", "the one function"),
    ("verbs-api/sysfs/src/path.rs", "uses no other crate, and has the same check"),
    ("verbs-api/sysfs/src/report.rs", "uses no other crate, and has the same check"),
];

/// Crates that only the project's developers run.
const FREE: [&str; 5] = ["urxe-fuzz", "urxe-manual", "urxe-test-support", "urxe-tests", "xtask"];

/// Returns a line for each other use of a function that reads variables.
pub fn check() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (_, file) in root_files(&FREE)? {
        faults.extend(of_crate(&file)?);
    }
    Ok(faults)
}

/// Returns the faults of the crate with this root file.
fn of_crate(file: &Path) -> Result<Vec<String>> {
    let is_reader = |path: &[String]| {
        READERS.iter().any(|reader| path.len() >= 2 && path[path.len() - 2..] == *reader)
    };
    let is_allowed =
        |place: &str| ALLOWED.iter().any(|(file, _)| place.strip_prefix(file).is_some());
    let uses = modules::paths(file)?;
    let wrong = uses.into_iter().filter(|(path, place)| is_reader(path) && !is_allowed(place));
    Ok(wrong
        .map(|(path, place)| {
            format!("{place}: {}: use urxe_io::sys::environment::value", path.join("::"))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    #[test]
    fn each_other_reader_is_found() {
        let folder = "tools/xtask/testdata/environment";
        let found = of_crate(&root().join(folder).join("lib.rs")).unwrap();
        let expected =
            ["deep.rs:3: std::env::var_os", "deep.rs:8: env::vars", "lib.rs:8: libc::getenv"]
                .map(|what| format!("{folder}/{what}: use urxe_io::sys::environment::value"));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_allowed_files_read_variables() {
        for (file, _) in ALLOWED {
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            assert!(READERS.iter().any(|reader| text.contains(&reader.join("::"))), "{file}");
        }
    }
}
