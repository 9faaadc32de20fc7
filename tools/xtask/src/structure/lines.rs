//! Lengths: a source file has at most 700 lines, a line of code or prose at most 100 columns.
//!
//! The following lines may be longer:
//!
//! | file | line |
//! |---|---|
//! | any | a row of a table: it begins with a vertical bar |
//! | any | inside a code fence |
//! | any | with a URL |
//! | Rust | with a string literal, or part of one |
//! | Rust | between braces or brackets of a macro, which rustfmt often leaves alone |
//! | Rust | of an item with `#[rustfmt::skip]` |

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tracked;
use crate::run::root;

/// Lines of a file.
const MAX_LINES: usize = 700;
/// Characters of a line.
const MAX_COLUMNS: usize = 100;

/// Returns a line for each file and each line that is too long.
pub fn check() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in tracked(&["*.rs", "*.md"])? {
        let text = fs::read_to_string(root().join(&file))?;
        let name = file.display().to_string();
        let is_rust = name.ends_with(".rs");
        let count = text.lines().count();
        if is_rust && count > MAX_LINES {
            faults.push(format!("{name}: {count} lines, at most {MAX_LINES}"));
        }
        let long = too_long(&text, is_rust).with_context(|| name.clone())?;
        let long = long.into_iter().map(|(line, columns)| {
            format!("{name}:{line}: {columns} columns, at most {MAX_COLUMNS}")
        });
        faults.extend(long);
    }
    Ok(faults)
}

/// Returns number and length of each line that is too long.
fn too_long(text: &str, is_rust: bool) -> Result<Vec<(usize, usize)>> {
    if text.lines().all(|line| line.chars().count() <= MAX_COLUMNS) {
        return Ok(Vec::new());
    }
    let mut free = BTreeSet::new();
    if is_rust {
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow::anyhow!("not Rust: {error}"))?;
        free_lines(tokens, &mut free);
    }
    let (mut found, mut is_fenced) = (Vec::new(), false);
    for (line, number) in text.lines().zip(1..) {
        let code = line.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| code.strip_prefix(mark));
        let prose = if is_rust { comment.unwrap_or_default().trim_start() } else { code };
        // A fence ends with its comment at the latest.
        is_fenced &= !is_rust || comment.is_some();
        is_fenced ^= prose.starts_with("```");
        let columns = line.chars().count();
        let is_free = comment.is_none() && free.contains(&number);
        let may_be = is_free || is_fenced || prose.starts_with('|') || line.contains("://");
        if columns > MAX_COLUMNS && !may_be {
            found.push((number, columns));
        }
    }
    Ok(found)
}

/// Adds the lines of string literals, of macros and of items that rustfmt skips.
fn free_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let (mut is_macro, mut was_bang, mut is_skipped) = (false, false, false);
    for token in tokens {
        let span = token.span();
        let is_bang = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '!');
        match &token {
            TokenTree::Group(group) => {
                if is_macro && group.delimiter() != Delimiter::Parenthesis
                    || is_skipped && group.delimiter() == Delimiter::Brace
                {
                    lines.extend(span.start().line..=span.end().line);
                    is_skipped = false;
                }
                is_skipped |= group.stream().to_string().replace(' ', "") == "rustfmt::skip";
                free_lines(group.stream(), lines);
            }
            TokenTree::Literal(literal) if literal.to_string().contains('"') => {
                lines.extend(span.start().line..=span.end().line);
            }
            _ => {}
        }
        // `name! {` and `macro_rules! name {`.
        is_macro = is_bang || was_bang && matches!(token, TokenTree::Ident(_));
        was_bang = is_bang;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_prose_and_code_are_found() {
        let words = "word ".repeat(25);
        let text = format!(
            "//! {words}\n\nfn f() {{}} // {words}\nconst LONG{}: u8 = 1;\n",
            "_".repeat(99)
        );
        let numbers: Vec<usize> =
            too_long(&text, true).unwrap().into_iter().map(|(line, _)| line).collect();
        assert_eq!(numbers, [1, 3, 4]);
        assert_eq!(too_long(&format!("# Title\n\n{words}\n"), false).unwrap(), [(3, 125)]);
    }

    #[test]
    fn unwrappable_lines_may_be_long() {
        let words = "word ".repeat(25);
        let rust = format!(
            "//! | {words}|\n//! ```text\n//! {words}\n//! ```\n// https://example.org/{words}\n\
             const A: &str = \"{words}\";\nconst B: &str = r\"\n{words}\n\";\n\
             table! {{\n{words}\n}}\nmacro_rules! table {{\n{words}\n}}\n"
        );
        assert_eq!(too_long(&rust, true).unwrap(), []);
        let prose = format!("| {words}|\n```sh\n{words}\n```\n<https://example.org/{words}>\n");
        assert_eq!(too_long(&prose, false).unwrap(), []);
    }
}
