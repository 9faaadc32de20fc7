//! A manual page: name, sections, and their text in roff.
//!
//! Sections stand in the order of man-pages(7), whatever the order in which their parts are added.
//! All letters outside ASCII become escapes, because groff without preconv reads Latin-1.

use std::fmt::Write as _;

/// Sections before all others, in this order.
const FIRST: [&str; 4] = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"];
/// Sections after all others, in this order.
const LAST: [&str; 5] = ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"];
/// The heading of all pages.
const MANUAL: &str = "urxe manual";

/// A page.
pub struct Page {
    /// The name, such as `urxe-run`.
    pub name: String,
    /// The number of the manual's section: 1 for commands, 7 for overviews.
    pub number: u8,
    /// Headings, and texts in roff.
    sections: Vec<(String, String)>,
}

impl Page {
    /// Returns a page with its section NAME.
    pub fn new(name: &str, number: u8, about: &str) -> Self {
        let mut page = Self { name: name.to_owned(), number, sections: Vec::new() };
        page.add("NAME", &format!("{} \\- {}\n", escaped(name), escaped(&about.replace('`', ""))));
        page
    }

    /// Adds text in roff to the section with this heading, which is made if the page has none.
    pub fn add(&mut self, heading: &str, roff: &str) {
        let heading = heading.to_uppercase();
        match self.sections.iter_mut().find(|(name, _)| *name == heading) {
            Some((_, text)) => text.push_str(roff),
            None => self.sections.push((heading, roff.to_owned())),
        }
    }

    /// Returns whether the page has a section with this heading.
    pub fn has(&self, heading: &str) -> bool {
        self.sections.iter().any(|(name, _)| name == heading)
    }

    /// Returns the page's file.
    pub fn roff(&self, date: &str) -> String {
        let mut sections: Vec<_> = self.sections.iter().collect();
        sections.sort_by_key(|(heading, _)| place(heading));
        let has_table = sections.iter().any(|(_, text)| text.contains("\n.TS\n"));
        // The first line names the preprocessor tbl for man(1).
        let mut roff = if has_table { "'\\\" t\n" } else { "" }.to_owned();
        let (name, version) = (escaped(&self.name), env!("CARGO_PKG_VERSION"));
        let head = format!(".TH {name} {} {date} \"urxe {version}\" \"{MANUAL}\"", self.number);
        // Words of options are not hyphenated, and lines are not filled up with blanks.
        let _ = writeln!(roff, ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n{head}\n.nh\n.ad l");
        for (heading, text) in sections {
            let _ = writeln!(roff, ".SH {}", quoted(&escaped(heading)));
            // A heading begins a paragraph by itself.
            roff.push_str(text.strip_prefix(".PP\n").unwrap_or(text));
        }
        ascii(&roff)
    }
}

/// Returns the place of a section.
fn place(heading: &str) -> usize {
    if let Some(at) = FIRST.iter().position(|name| *name == heading) {
        return at;
    }
    LAST.iter().position(|name| *name == heading).map_or(FIRST.len(), |at| FIRST.len() + 1 + at)
}

/// Returns an argument of a macro.
pub fn quoted(text: &str) -> String {
    if text.contains(' ') { format!("\"{text}\"") } else { text.to_owned() }
}

/// Returns text in roff with the code between backticks in bold.
pub fn with_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("\\fB{part}\\fR") } else { part.into() })
        .collect()
}

/// Returns text without special characters of roff.
pub fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\*(Aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

/// Replaces letters outside ASCII by escapes.
fn ascii(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            result.push(letter);
        } else {
            let _ = write!(result, "\\[u{:04X}]", u32::from(letter));
        }
    }
    result
}
