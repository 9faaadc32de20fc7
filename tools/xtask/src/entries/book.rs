//! The book: mdBook builds the pages of `docs` without warnings, and each link of the result has a
//! target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;

use super::none;
use crate::machine::{is_root, need_packages, succeeds};
use crate::run::{Runner, root, target_folder};

/// The release of mdBook that root installs, with its hashes.
const REQUIREMENTS: &str = "tools/xtask/book-requirements.txt";

/// Builds the book in `target/book`.
pub fn book(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let folder = target_folder().join("book");
    let mut command = Command::new(need_mdbook(runner)?);
    command.arg("build").arg(root().join("docs")).arg("--dest-dir").arg(&folder);
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    write!(runner.output, "{printed}")?;
    ensure!(output.status.success(), "failed ({}): {command:?}", output.status);
    ensure!(!has_warning(&printed), "mdbook printed a warning");
    let faults = dead_links(&folder)?;
    ensure!(faults.is_empty(), "links of the book without a target:\n{}", faults.join("\n"));
    writeln!(runner.output, "The book is {}", folder.join("index.html").display())?;
    runner.tally.passed += 1;
    Ok(())
}

/// Returns the program `mdbook`: from PATH, or from the target folder. Root installs it there if it
/// is missing.
fn need_mdbook(runner: &mut Runner) -> Result<PathBuf> {
    let own = target_folder().join("mdbook");
    let programs = [PathBuf::from("mdbook"), own.join("bin/mdbook")];
    let found = || programs.iter().find(|program| succeeds(program, &["--version"])).cloned();
    if let Some(program) = found() {
        return Ok(program);
    }
    if !is_root() {
        bail!("this machine lacks mdbook; install it: cargo install mdbook --locked");
    }
    need_packages(&["python3-pip"], runner)?;
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--target"]);
    runner.run(command.arg(&own).args(["--require-hashes", "-r", REQUIREMENTS]))?;
    found().context("the installed mdbook does not start")
}

/// Returns whether the log of mdbook has a warning or an error.
fn has_warning(log: &str) -> bool {
    log.lines().any(|line| line.split_whitespace().any(|word| matches!(word, "WARN" | "ERROR")))
}

/// Returns a line for each relative link of the book without a file or an element with its id.
fn dead_links(folder: &Path) -> Result<Vec<String>> {
    let (mut links, mut ids) = (Vec::new(), BTreeMap::new());
    let link = Regex::new(r#"\bhref="([^"]*)""#)?;
    let id = Regex::new(r#"\bid="([^"]*)""#)?;
    for file in pages(folder)? {
        let text = fs::read_to_string(&file)?;
        let all = |pattern: &Regex| -> BTreeSet<String> {
            pattern.captures_iter(&text).map(|found| found[1].to_owned()).collect()
        };
        links.extend(all(&link).into_iter().map(|link| (file.clone(), link)));
        ids.insert(file, all(&id));
    }
    ensure!(!links.is_empty(), "{} has no page with a link", folder.display());
    let mut faults = Vec::new();
    for (file, link) in links {
        let (path, id) = link.split_once('#').unwrap_or((&link, ""));
        if path.contains(':') {
            continue;
        }
        let target = match path {
            "" => file.clone(),
            _ => file.parent().context("a page is in the folder")?.join(path),
        };
        // Both spellings of a path, with and without `..`, name one page.
        let Ok(target) = target.canonicalize() else {
            faults.push(format!("{}: {link}", file.display()));
            continue;
        };
        let has_id = ids.get(&target).is_none_or(|ids| id.is_empty() || ids.contains(id));
        if !has_id {
            faults.push(format!("{}: {link}", file.display()));
        }
    }
    Ok(faults)
}

/// Returns the book's pages, except for those that mdBook adds: the page for printing, which joins
/// all others, and the one for addresses that do not exist.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path().canonicalize()?;
        let is_added = path.ends_with("print.html") || path.ends_with("404.html");
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "html") && !is_added {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_mdbook_are_found() {
        assert!(!has_warning(" INFO Book building has started\n INFO WARNINGS: 0\n"));
        assert!(has_warning(" INFO Book building has started\n WARN unclosed HTML tag\n"));
        assert!(has_warning("ERROR failed to read chapter\n"));
    }

    #[test]
    fn links_without_a_file_or_an_id_are_found() {
        let folder = target_folder().join("tmp/book-links");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("b")).unwrap();
        let a = r##"<h1 id="a">A</h1><a href="b/c.html#here">x</a><a href="#a">y</a>
                    <a href="https://example.org/gone">z</a>"##;
        fs::write(folder.join("a.html"), a).unwrap();
        fs::write(folder.join("b/c.html"), r#"<a id="here" href="../a.html">x</a>"#).unwrap();
        assert_eq!(dead_links(&folder).unwrap(), Vec::<String>::new());
        let bad = r##"<a href="c.html#there">x</a><a href="../d.html">y</a><a href="#">z</a>"##;
        fs::write(folder.join("b/e.html"), bad).unwrap();
        let faults = dead_links(&folder).unwrap();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults.iter().any(|fault| fault.ends_with("e.html: c.html#there")), "{faults:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
