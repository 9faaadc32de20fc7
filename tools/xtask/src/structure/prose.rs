//! Checks the language of comments and Markdown pages against limits.
//!
//! An area is a Markdown page, or the comments of a crate with its error messages and command-line
//! help. Areas with few words are not measured, because a single word would exceed their limit.
//!
//! | measure | limit | in |
//! |---|---|---|
//! | clauses that begin with a bare "who" or "what" | 1 in 1,000 words | all |
//! | "told" and "tells" | 0.5 in 1,000 words | all |
//! | "nobody", "somebody", "anybody", "whoever" | 0.2 in 1,000 words | all |
//! | "it" | 9 in 1,000 words | comments |
//! | sentences with more than 25 words | 12 % | Markdown |
//!
//! Code, tables, link targets and URLs do not count.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};

use super::{metadata, tracked};
use crate::run::root;

#[cfg(test)]
mod tests;

/// Areas that do not keep the limits yet: a folder of a crate, or a Markdown page.
const PENDING: &[&str] = &[];

/// Words that an area needs to be measured.
const MIN_WORDS: usize = 200;
/// Words of a long sentence.
const LONG_SENTENCE: usize = 26;
/// How many of an area's files are named with a fault.
const NAMED_FILES: usize = 3;

/// One limit.
struct Measure {
    name: &'static str,
    /// Matches for each `of` words or sentences.
    limit: f64,
    of: usize,
    areas: Areas,
    count: fn(&str) -> usize,
    total: fn(&str) -> usize,
}

/// The areas that a measure is for.
#[derive(PartialEq)]
enum Areas {
    All,
    Comments,
    Markdown,
}

const MEASURES: [Measure; 5] = [
    per_words("bare who/what clauses", 1.0, Areas::All, bare_clauses),
    per_words("told/tells", 0.5, Areas::All, |text| named(text, &["told", "tells"])),
    per_words("nobody/somebody/anybody/whoever", 0.2, Areas::All, |text| {
        named(text, &["nobody", "somebody", "anybody", "whoever"])
    }),
    per_words("it", 9.0, Areas::Comments, |text| named(text, &["it"])),
    Measure {
        name: "sentences with more than 25 words",
        limit: 12.0,
        of: 100,
        areas: Areas::Markdown,
        count: |text| sentences(text).filter(|&words| words >= LONG_SENTENCE).count(),
        total: |text| sentences(text).count(),
    },
];

const fn per_words(
    name: &'static str,
    limit: f64,
    areas: Areas,
    count: fn(&str) -> usize,
) -> Measure {
    Measure { name, limit, of: 1000, areas, count, total: |text| words(text).count() }
}

/// The text of each file of an area.
type Texts = BTreeMap<String, String>;

/// Returns a line for each limit that an area exceeds, and for each row of [`PENDING`] that is not
/// needed.
pub fn check() -> Result<Vec<String>> {
    Ok(faults(&areas()?, PENDING))
}

/// Reads all areas, by their names.
fn areas() -> Result<BTreeMap<String, Texts>> {
    let mut folders = Vec::new();
    for package in metadata()?.packages {
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        folders.push(folder.strip_prefix(root())?.to_string());
    }
    let mut areas: BTreeMap<String, Texts> = BTreeMap::new();
    for file in tracked(&["*.rs", "*.md"])? {
        let text = fs::read_to_string(root().join(&file))?;
        let name = file.display().to_string();
        if file.components().any(|part| part.as_os_str() == "testdata") {
            continue;
        }
        let (area, text) = if name.ends_with(".md") {
            (Some(name.clone()), markdown(&text))
        } else {
            let holding = folders.iter().filter(|folder| Path::new(&name).starts_with(folder));
            let text = comments(&text).with_context(|| name.clone())?;
            (holding.max_by_key(|folder| folder.len()).cloned(), text)
        };
        let area = area.with_context(|| format!("{name} is in no crate"))?;
        areas.entry(area).or_default().insert(name, text);
    }
    Ok(areas)
}

fn faults(areas: &BTreeMap<String, Texts>, pending: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (area, texts) in areas {
        let over = over_limits(area, texts);
        match pending.contains(&area.as_str()) {
            true if over.is_empty() => {
                found.push(format!(
                    "{area} keeps the limits: remove it from PENDING in {}",
                    file!()
                ));
            }
            true => {}
            false => found.extend(over),
        }
    }
    let gone = pending.iter().filter(|area| !areas.contains_key(**area));
    found.extend(gone.map(|area| format!("{area} is gone: remove it from PENDING in {}", file!())));
    found
}

/// Returns a line for each limit that the area exceeds, with the files that hold most matches.
fn over_limits(area: &str, texts: &Texts) -> Vec<String> {
    let sum = |count: fn(&str) -> usize| texts.values().map(|text| count(text)).sum::<usize>();
    if sum(|text| words(text).count()) <= MIN_WORDS {
        return Vec::new();
    }
    let other = if area.ends_with(".md") { Areas::Comments } else { Areas::Markdown };
    let mut lines = Vec::new();
    for Measure { name, limit, of, count, total, .. } in
        MEASURES.iter().filter(|measure| measure.areas != other)
    {
        let rate = (*of * sum(*count)) as f64 / sum(*total).max(1) as f64;
        if rate > *limit {
            let mut files: Vec<_> = texts.iter().map(|(file, text)| (count(text), file)).collect();
            files.sort_by(|a, b| b.cmp(a));
            let files: Vec<String> = files
                .iter()
                .filter(|(count, _)| *count > 0)
                .take(NAMED_FILES)
                .map(|(count, file)| format!("{file} ({count})"))
                .collect();
            lines.push(format!(
                "{area}: {name}: {rate:.1} in {of}, at most {limit:.1}; most in {}",
                files.join(", ")
            ));
        }
    }
    lines
}

/// Returns the prose of a Markdown page, paragraphs separated by empty lines.
fn markdown(text: &str) -> String {
    let (mut prose, mut is_fenced) = (String::new(), false);
    for line in text.lines() {
        add_line(line, &mut is_fenced, &mut prose);
    }
    without_code(&prose)
}

/// Returns the comments of a Rust file, and the string literals of its `error`, `arg` and `command`
/// attributes: paragraphs, separated by empty lines.
fn comments(text: &str) -> Result<String> {
    let (mut prose, mut is_fenced) = (String::new(), false);
    for line in text.lines() {
        let code = line.trim_start();
        match ["///", "//!", "//"].iter().find_map(|mark| code.strip_prefix(mark)) {
            Some(comment) => add_line(comment, &mut is_fenced, &mut prose),
            None => {
                is_fenced = false;
                prose.push_str("\n\n");
            }
        }
    }
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("not Rust: {error}"))?;
    add_messages(tokens, &mut prose);
    Ok(without_code(&prose))
}

/// Adds a line of Markdown, unless it belongs to code, a table or a list of link targets.
fn add_line(line: &str, is_fenced: &mut bool, prose: &mut String) {
    let line = line.trim();
    if line.starts_with("```") {
        *is_fenced ^= true;
    } else if !*is_fenced && !line.starts_with('|') && !line.contains("]: ") {
        let item = line.strip_prefix("- ").or(line.strip_prefix("* ")).or_else(|| {
            line.split_once(". ").filter(|(nr, _)| nr.parse::<u8>().is_ok()).map(|(_, item)| item)
        });
        if item.is_some() || line.is_empty() || line.starts_with('#') {
            prose.push_str("\n\n");
        }
        prose.push_str(item.unwrap_or(line));
        // A heading is a paragraph.
        prose.push_str(if line.starts_with('#') { "\n\n" } else { "\n" });
    }
}

/// Adds the string literals of attributes that hold messages, each as a paragraph.
fn add_messages(tokens: TokenStream, prose: &mut String) {
    let mut was_hash = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            let name = group.stream().into_iter().next().map(|token| token.to_string());
            let holds =
                ["error", "arg", "command"].iter().any(|kind| name.as_deref() == Some(kind));
            if was_hash && holds {
                add_literals(group.stream(), prose);
            } else {
                add_messages(group.stream(), prose);
            }
        }
        was_hash = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#');
    }
}

fn add_literals(tokens: TokenStream, prose: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_literals(group.stream(), prose),
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    prose.push_str(&format!("\n\n{}\n\n", text.value()));
                }
            }
            _ => {}
        }
    }
}

/// Puts the word "code" for inline code and drops link targets and URLs.
fn without_code(prose: &str) -> String {
    let mut out = String::new();
    for (at, part) in prose.split('`').enumerate() {
        out.push_str(if at % 2 == 0 { part } else { "code" });
    }
    let mut parts = out.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("] ");
        text.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    let has_url = |word: &&str| !word.contains("://");
    text.split(' ').filter(has_url).collect::<Vec<_>>().join(" ")
}

/// Returns the words of a text, each with the text behind it.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '-');
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(is_word)?;
            let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |len| start + len);
            let word = rest[start..end].trim_matches(['\'', '-']);
            rest = &rest[end..];
            if !word.is_empty() {
                return Some((word, rest));
            }
        }
    })
}

/// Counts clauses that begin with a bare "who" or "what", or with their forms.
fn bare_clauses(text: &str) -> usize {
    let begins = |(word, behind): &(&str, &str)| {
        let is_pronoun = ["who", "whom", "what", "whoever"]
            .iter()
            .any(|pronoun| word.strip_prefix(['w', 'W']).is_some_and(|rest| rest == &pronoun[1..]));
        let next = behind.trim_start();
        is_pronoun && next.len() < behind.len() && next.starts_with(char::is_alphanumeric)
    };
    words(text).filter(begins).count()
}

/// Counts the words that are one of `names`, or begin with one and an apostrophe.
fn named(text: &str, names: &[&str]) -> usize {
    let stem = |word: &str| word.split('\'').next().unwrap_or_default().to_lowercase();
    words(text).filter(|(word, _)| names.contains(&stem(word).as_str())).count()
}

/// Returns the number of words of each sentence that has at least three.
fn sentences(text: &str) -> impl Iterator<Item = usize> {
    text.split("\n\n").filter(|paragraph| !paragraph.starts_with('#')).flat_map(|paragraph| {
        let mut lengths = vec![0];
        for word in paragraph.split_whitespace() {
            *lengths.last_mut().expect("there is one") += 1;
            if word.ends_with(['.', '!', '?']) {
                lengths.push(0);
            }
        }
        lengths.into_iter().filter(|&words| words > 2)
    })
}
