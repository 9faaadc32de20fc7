//! The pages as a whole: the programs that print them have no warning, and they are complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{commands, pages, topics, write};

/// Any date.
const DATE: &str = "2026-01-31";

/// Writes everything to a temporary folder.
fn written() -> TempDir {
    let folder = TempDir::with_prefix("urxe-manual-").unwrap();
    write(folder.path(), DATE).unwrap();
    folder
}

/// Returns the files of both sections of the manual.
fn files(prefix: &Path) -> Vec<PathBuf> {
    let folders = ["share/man/man1", "share/man/man7"].map(|folder| prefix.join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns the output of a program on all files, or none if the program is missing.
fn output(program: &str, arguments: &[&str], files: &[PathBuf]) -> Option<String> {
    match Command::new(program).args(arguments).args(files).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some(String::from_utf8_lossy(&text).into_owned())
        }
        Err(error) => {
            eprintln!("skipped: {program} cannot be started: {error}");
            None
        }
    }
}

#[test]
fn groff_has_no_warning() {
    let folder = written();
    let arguments = ["-t", "-man", "-ww", "-z", "-Tutf8", "-rLL=78n"];
    if let Some(text) = output("groff", &arguments, &files(folder.path())) {
        assert_eq!(text, "");
    }
}

#[test]
fn man_has_no_warning() {
    let folder = written();
    // The formatted pages, on standard output, are not compared.
    let man = Command::new("man")
        .args(["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"])
        .env("MANWIDTH", "80")
        .env("LC_ALL", "C.UTF-8")
        .args(files(folder.path()))
        .output();
    match man {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stderr), ""),
        Err(error) => eprintln!("skipped: man cannot be started: {error}"),
    }
}

#[test]
fn mandoc_has_no_warning() {
    let folder = written();
    if let Some(text) = output("mandoc", &["-T", "lint", "-W", "all"], &files(folder.path())) {
        let is_fault = |line: &&str| !line.contains("STYLE: ");
        let faults: Vec<&str> = text.lines().filter(is_fault).collect();
        assert_eq!(faults.join("\n"), "");
    }
}

#[test]
fn each_reference_to_an_own_page_has_a_page() {
    let pages = pages();
    let names: Vec<String> =
        pages.iter().map(|page| format!("{}({})", page.name, page.number)).collect();
    for page in &pages {
        let text = page.roff(DATE).replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_()".contains(c)));
        let words = words.map(|word| word.trim_start_matches('(').replace("))", ")"));
        let own = words.filter(|word| {
            word.ends_with(')')
                && (word.starts_with("urxe(")
                    || word.starts_with("urxe-")
                    || word.starts_with("liburxe"))
        });
        for word in own {
            assert!(names.contains(&word), "{} refers to {word}", page.name);
        }
    }
}

#[test]
fn each_page_of_a_command_has_its_sections() {
    for page in commands::pages() {
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"] {
            assert!(page.has(heading), "{}: {heading}", page.name);
        }
        // The page of urxe install has the examples of both.
        assert!(page.has("EXAMPLES") || page.name == "urxe-uninstall", "{}", page.name);
    }
}

#[test]
fn the_environment_page_has_each_variable_of_docs() {
    let page = topics::pages().into_iter().find(|page| page.name == "urxe-environment").unwrap();
    let text = page.roff(DATE);
    let docs = include_str!("../../../docs/environment.md");
    let section = crate::markdown::section(docs, "Variables");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() > 10, "{rows:?}");
    for variable in rows {
        assert!(text.contains(&format!("\n\\fB{variable}\\fR\t")), "{variable}\n{text}");
    }
}

#[test]
fn no_script_completes_hidden_options() {
    let folder = written();
    let scripts = [
        "share/bash-completion/completions/urxe",
        "share/zsh/site-functions/_urxe",
        "share/fish/vendor_completions.d/urxe.fish",
    ];
    for script in scripts {
        let text = fs::read_to_string(folder.path().join(script)).unwrap();
        assert!(text.contains("pingpong"), "{script}");
        assert!(!text.contains("as-peer-process"), "{script}");
    }
}
