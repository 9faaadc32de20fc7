//! Which clauses of the IBTA specification are cited where.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::Result;

use super::none;
use crate::run::{Runner, root};
use crate::structure::tracked;

/// The files that cite a clause.
#[derive(Default)]
struct Cited {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// Prints the files that implement and test each clause, then the clauses without a test.
pub fn clauses(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let mut cited: BTreeMap<Vec<u32>, (String, Cited)> = BTreeMap::new();
    for file in tracked(&["*.rs"])? {
        let text = fs::read_to_string(root().join(&file))?;
        let name = file.display().to_string();
        if name.starts_with("tools/xtask") {
            continue;
        }
        let is_test = name.split('/').any(|part| part.starts_with("tests"));
        // The unit tests are the last module of a file.
        let (code, tests) = text.split_once("\nmod tests {").unwrap_or((&text, ""));
        for (text, is_test) in [(code, is_test), (tests, true)] {
            for clause in citations(text) {
                let entry = cited.entry(key(&clause)).or_insert((clause, Cited::default()));
                let files = if is_test { &mut entry.1.tests } else { &mut entry.1.code };
                files.insert(name.clone());
            }
        }
    }
    let list = |files: &BTreeSet<String>| files.iter().cloned().collect::<Vec<_>>().join(" ");
    for (clause, files) in cited.values() {
        writeln!(
            runner.output,
            "{clause}\n  code:  {}\n  tests: {}",
            list(&files.code),
            list(&files.tests)
        )?;
    }
    let untested = cited.values().filter(|(_, files)| files.tests.is_empty());
    let untested: Vec<&str> = untested.map(|(clause, _)| clause.as_str()).collect();
    writeln!(
        runner.output,
        "\n{} clauses, {} without a citing test: {}",
        cited.len(),
        untested.len(),
        untested.join(", ")
    )?;
    Ok(())
}

/// Returns the clauses in comments: `C9-94`, `o9-2.1`, `9.7.5.2`, `A19.4.1`.
fn citations(text: &str) -> Vec<String> {
    let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, text)| text));
    let words = comments
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '.' && c != '-'));
    words
        .map(|word| word.trim_matches(['.', '-']))
        .filter(|word| is_clause(word))
        .map(str::to_owned)
        .collect()
}

/// Returns whether a word is a clause: a compliance statement, or a section with at least three
/// numbers of chapters 8 to 13 or of an annex.
fn is_clause(word: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty() && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit())
    };
    if let Some((chapter, statement)) = word.split_once('-') {
        let chapter = chapter
            .strip_prefix(['C', 'o', 'A'])
            .or(chapter.strip_prefix("CA"))
            .or(chapter.strip_prefix("oA"));
        return chapter.is_some_and(is_number) && statement.split('.').all(is_number);
    }
    let (annex, section) = word.strip_prefix('A').map_or((false, word), |section| (true, section));
    let mut parts = section.split('.');
    let chapter = parts.next().and_then(|part| part.parse::<u32>().ok());
    let is_known = chapter.is_some_and(|chapter| {
        if annex { (14..=19).contains(&chapter) } else { (8..=13).contains(&chapter) }
    });
    let rest: Vec<&str> = parts.collect();
    is_known && rest.len() >= 2 - usize::from(annex) && rest.into_iter().all(is_number)
}

/// Orders clauses by their numbers.
fn key(clause: &str) -> Vec<u32> {
    let kind = u32::from(!clause.starts_with(|c: char| c.is_ascii_digit()))
        + u32::from(clause.contains('-'));
    let numbers = clause.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    let first = clause.bytes().next().map_or(0, u32::from);
    std::iter::once(kind).chain(numbers).chain([first]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_distinguished_from_other_numbers() {
        let text = "// IBTA C9-94, o9-2.1 and 9.7.5.2; A19.4.1.\n\
                    // Debian 12.9, 192.168.1.1, 10.0.0.1, RFC-1.2";
        assert_eq!(citations(text), ["C9-94", "o9-2.1", "9.7.5.2", "A19.4.1"]);
    }
}
