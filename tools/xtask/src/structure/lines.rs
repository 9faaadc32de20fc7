//! Lengths: a source file has at most 700 lines, and a line at most 100 columns.
//!
//! Only Markdown may have longer lines, where a line cannot be wrapped:
//!
//! - a row of a table, which begins with a vertical bar
//! - a line inside a code fence
//! - a line with a link or a URL

use std::fs;

use anyhow::Result;

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
        let long = too_long(&text, !is_rust).into_iter().map(|(line, columns)| {
            format!("{name}:{line}: {columns} columns, at most {MAX_COLUMNS}")
        });
        faults.extend(long);
    }
    Ok(faults)
}

/// Returns number and length of each line that is too long.
fn too_long(text: &str, is_markdown: bool) -> Vec<(usize, usize)> {
    let (mut found, mut is_fenced) = (Vec::new(), false);
    for (line, number) in text.lines().zip(1..) {
        let prose = line.trim_start();
        is_fenced ^= prose.starts_with("```");
        let has_link = line.contains("](") || line.contains("://");
        let may_be = is_markdown && (is_fenced || has_link || prose.starts_with('|'));
        let columns = line.chars().count();
        if columns > MAX_COLUMNS && !may_be {
            found.push((number, columns));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_long_line_of_rust_is_found() {
        let words = "word ".repeat(25);
        let lines = [
            format!("//! {words}"),
            format!("//! | {words}|"),
            format!("// https://example.org/{words}"),
            format!("const A: &str = \"{words}\";"),
            format!("fn f() {{}} // {words}"),
            format!("const LONG{}: u8 = 1;", "_".repeat(99)),
        ];
        for line in lines {
            let length = line.chars().count();
            assert_eq!(too_long(&format!("fn f() {{}}\n{line}\n"), false), [(2, length)], "{line}");
        }
        let text = format!("//! ```text\n//! {words}\n//! ```\n");
        assert_eq!(too_long(&text, false), [(2, 129)]);
        // A letter of two bytes is one column.
        assert_eq!(too_long(&"é".repeat(100), false), []);
    }

    #[test]
    fn only_lines_of_markdown_that_cannot_be_wrapped_may_be_long() {
        let words = "word ".repeat(25);
        let text = format!(
            "| {words}|\n```sh\n{words}\n```\n<https://example.org/{words}>\n[a](b) {words}\n"
        );
        assert_eq!(too_long(&text, true), []);
        assert_eq!(too_long(&format!("# Title\n\n{words}\n"), true), [(3, 125)]);
    }
}
