//! Markdown as roff, for the parts of Markdown that docs uses: paragraphs, lists, tables, code and
//! headings of the third level.
//!
//! | Markdown | roff |
//! |---|---|
//! | code in a line | bold |
//! | a link to the page of another manual page | its text, and the reference |
//! | another link inside docs | its text |
//! | a link to a web page | its text, and the address |
//! | `rping(1)` | the name in bold |

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::page::{escaped, quoted};
use crate::table::{self, Cell};

/// Pages and sections of docs that are manual pages, or parts of one. The first match counts.
const REFERENCES: [(&str, &str); 9] = [
    ("environment.md#faults", "urxe-faults(7)"),
    ("#faults", "urxe-faults(7)"),
    ("environment.md", "urxe-environment(7)"),
    ("faults.md", "urxe-faults(7)"),
    ("devices.md", "urxe-link(1)"),
    ("captures.md", "urxe-decode(1)"),
    ("c-programs.md", "liburxe(7)"),
    ("troubleshooting.md", "urxe-doctor(1)"),
    ("performance.md", "urxe-perf(1)"),
];

/// Returns the text below the heading `## HEADING`, up to the next heading of this level.
///
/// # Panics
/// If there is no such heading: a page of docs was changed, and the manual was not.
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = format!("\n## {heading}\n");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no section {heading:?}"));
    rest.split("\n## ").next().unwrap_or_default()
}

/// Returns the text between the title and the first heading of the second level.
pub fn introduction(page: &str) -> &str {
    let body = page.split_once('\n').map_or("", |(_, body)| body);
    body.split("\n## ").next().unwrap_or_default()
}

/// Returns Markdown as roff.
pub fn roff(markdown: &str) -> String {
    let mut writer = Writer::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        writer.event(event);
    }
    writer.flush();
    writer.out
}

/// The state of the translation.
#[derive(Default)]
struct Writer {
    out: String,
    /// The words of the present paragraph, item or cell.
    line: Vec<Inline>,
    /// How many Strong and Emphasis are open.
    strong: usize,
    emphasis: usize,
    /// The next number of each open list; none for a list of bullets.
    lists: Vec<Option<u64>>,
    /// Whether an item or a subsection begins, whose first paragraph needs no macro.
    starts_item: bool,
    /// The target of the open link, and the words before the link.
    link: Option<(String, usize)>,
    is_code: bool,
    rows: Vec<Vec<Cell>>,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.line.push(roman(text.into_string())),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.line.push(bold(code.into_string())),
            Event::SoftBreak | Event::HardBreak => self.line.push(roman(" ")),
            // Pages of docs have no other parts; the tests compare their words.
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph if self.starts_item => self.starts_item = false,
            Tag::Paragraph => self.out.push_str(".PP\n"),
            Tag::List(number) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.out.push_str(".RS 4\n");
                }
                self.lists.push(number);
            }
            Tag::Item => {
                let head = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!(".IP {}. 4\n", *number - 1)
                    }
                    _ => ".IP \\(bu 2\n".to_owned(),
                };
                self.out.push_str(&head);
                self.starts_item = true;
            }
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.flush();
                self.is_code = true;
            }
            Tag::Strong => self.strong += 1,
            Tag::Emphasis => self.emphasis += 1,
            Tag::Link { dest_url, .. } => {
                self.link = Some((dest_url.into_string(), self.line.len()));
            }
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.flush(),
            TagEnd::Item => {
                self.flush();
                self.starts_item = false;
            }
            TagEnd::Heading(_) => {
                let heading = plain(&std::mem::take(&mut self.line));
                self.out.push_str(&format!(".SS {}\n", quoted(&escaped(&heading))));
                self.starts_item = true;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.out.push_str(".RE\n");
                }
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                let code = plain(&std::mem::take(&mut self.line));
                self.out.push_str(&literal(&code));
            }
            TagEnd::Strong => self.strong -= 1,
            TagEnd::Emphasis => self.emphasis -= 1,
            TagEnd::Link => self.end_of_link(),
            TagEnd::TableCell => {
                let words = std::mem::take(&mut self.line);
                let cell = Cell { plain: plain(&words), roff: line(words) };
                self.rows.last_mut().expect("a cell is in a row").push(cell);
            }
            TagEnd::Table => {
                let rows = std::mem::take(&mut self.rows);
                self.out.push_str(&table::roff(&rows));
            }
            _ => {}
        }
    }

    /// Adds words, with the names of manual pages in bold.
    fn text(&mut self, text: &str) {
        let mut rest = text;
        while let Some((before, name, after)) = reference(rest) {
            self.words(before);
            self.line.push(bold(name));
            rest = after;
        }
        self.words(rest);
    }

    fn words(&mut self, text: &str) {
        match (self.strong, self.emphasis) {
            _ if text.is_empty() => {}
            (0, 0) => self.line.push(roman(text)),
            (0, _) => self.line.push(italic(text)),
            _ => self.line.push(bold(text)),
        }
    }

    /// Adds the target of a link, if a reader of the manual can follow it.
    fn end_of_link(&mut self) {
        let Some((target, start)) = self.link.take() else { return };
        let is_page =
            |(page, _): &&(&str, &str)| target.trim_start_matches("../").starts_with(page);
        if target.contains("://") {
            self.text(&format!(" <{target}>"));
        } else if let Some((_, reference)) = REFERENCES.iter().find(is_page) {
            // The name of the page of docs says nothing here.
            let is_name = plain(&self.line[start..]).ends_with(".md");
            if is_name {
                self.line.truncate(start);
            }
            self.text(&if is_name { (*reference).to_owned() } else { format!(", {reference}") });
        }
    }

    /// Ends a paragraph.
    fn flush(&mut self) {
        let words = std::mem::take(&mut self.line);
        if !words.is_empty() {
            self.out.push_str(&line(words));
            self.out.push('\n');
        }
    }
}

/// Splits text at the first reference such as `rping(1)`: before, name, the rest.
fn reference(text: &str) -> Option<(&str, &str, &str)> {
    for (at, _) in text.match_indices('(') {
        let rest = &text[at..];
        let is_section = matches!(rest.as_bytes(), [b'(', b'1'..=b'8', b')', ..]);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let start = text[..at].rfind(|c| !is_part(c)).map_or(0, |before| before + 1);
        if is_section && start < at && text.is_char_boundary(start) {
            return Some((&text[..start], &text[start..at], rest));
        }
    }
    None
}

/// Returns lines of code, which keep their breaks.
pub fn literal(code: &str) -> String {
    let lines: Vec<String> =
        code.trim_end_matches('\n').lines().map(|text| line(vec![roman(text)])).collect();
    format!(".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", lines.join("\n"))
}

/// Returns words as a line of roff.
pub fn line(words: Vec<Inline>) -> String {
    // Neighbours join: only then is a dot at the begin of the line found.
    let mut joined: Vec<Inline> = Vec::new();
    for word in words {
        match (joined.last_mut(), word) {
            (Some(Inline::Roman(before)), Inline::Roman(text)) => before.push_str(&text),
            (_, word) => joined.push(word),
        }
    }
    let mut roff = Roff::new();
    let text = roff.text(joined).render();
    without_preamble(&text).trim().to_owned()
}

/// Returns rendered text without the definition of the apostrophe, which each page has once.
pub fn without_preamble(rendered: &str) -> &str {
    let is_preamble = rendered.starts_with(".ie ");
    if is_preamble { rendered.splitn(3, '\n').nth(2).unwrap_or_default() } else { rendered }
}

/// Returns the words without fonts.
fn plain(words: &[Inline]) -> String {
    let text = |word: &Inline| match word {
        Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.clone(),
        Inline::LineBreak => "\n".to_owned(),
    };
    words.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_lists_and_code() {
        let markdown =
            "One `-d` *two*\nthree.\n\n- **a**: b\n- c\n\n```sh\n.d 'e'\n```\n\n1. f\n\nThe end.\n";
        let expected = ".PP\nOne \\fB\\-d\\fR \\fItwo\\fR three.\n.IP \\(bu 2\n\\fBa\\fR: b\n\
                        .IP \\(bu 2\nc\n.PP\n.RS 4\n.nf\n\\&.d \\*(Aqe\\*(Aq\n.fi\n.RE\n\
                        .IP 1. 4\nf\n.PP\nThe end.\n";
        assert_eq!(roff(markdown), expected);
    }

    #[test]
    fn links_to_manual_pages_become_references() {
        let of = |markdown| roff(markdown).trim_start_matches(".PP\n").to_owned();
        assert_eq!(of("[x](devices.md#a)"), "x, \\fBurxe\\-link\\fR(1)\n");
        assert_eq!(of("[environment.md](environment.md)"), "\\fBurxe\\-environment\\fR(7)\n");
        assert_eq!(of("[x](recipes.md)"), "x\n");
        assert_eq!(of("[x](https://a.b/c)"), "x <https://a.b/c>\n");
        assert_eq!(of("see rping(1), f(x)"), "see \\fBrping\\fR(1), f(x)\n");
    }

    #[test]
    fn sections_end_at_the_next_heading() {
        let page = "# T\n\nintro\n\n## A\n\na\n\n### B\n\nb\n\n## C\n\nc\n";
        assert_eq!(introduction(page).trim(), "intro");
        assert_eq!(section(page, "A").trim(), "a\n\n### B\n\nb");
        assert_eq!(section(page, "C").trim(), "c");
    }
}
