//! Output of results, errors and log lines.
//!
//! All of them may have text of other processes and of peers, so special characters are escaped
//! ([`urxe_stack::escape`]).

use std::error::Error;
use std::io::{self, IsTerminal, LineWriter, Write};
use std::ops::Index;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::debug_fn;
use urxe_stack::escape::{Escaped, EscapingWriter};
use urxe_stack::sys::environment;

/// Returns standard output with escapes. A terminal receives each line at once, so that slow work
/// shows progress. A pipe receives large pieces.
pub fn stdout() -> Box<dyn Write> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        Box::new(EscapingWriter::new(LineWriter::new(stdout.lock())))
    } else {
        let buffered = io::BufWriter::with_capacity(64 * 1024, stdout.lock());
        Box::new(EscapingWriter::new(buffered))
    }
}

/// Returns standard output for the data of a peer: with escapes on a terminal, and unchanged for
/// another program.
pub fn data() -> Box<dyn Write> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        Box::new(EscapingWriter::new(stdout.lock()))
    } else {
        Box::new(stdout.lock())
    }
}

/// Writes a line to standard output at once. A closed output does not end the run.
pub fn line(text: &str) {
    let mut out = EscapingWriter::new(io::stdout().lock());
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a line to standard error. A failed write is ignored, because there is no other place to
/// report to.
pub fn error_line(text: &str) {
    let _ = writeln!(EscapingWriter::new(io::stderr()), "{text}");
}

/// Writes `value` as JSON, indented, with a line feed.
fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Writes `value` to standard output: as JSON, or else by `text`.
pub fn print<E: From<io::Error>>(
    as_json: bool,
    value: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = stdout();
    if as_json {
        json(&mut out, value)?;
    } else {
        text(&mut out)?;
    }
    Ok(out.flush()?)
}

/// Writes `value` as JSON on one line.
pub fn json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// A JSON object whose keys keep the order in which they were added.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub struct Object(Map<String, Value>);

impl Object {
    /// Returns an object with one key, whose value may be `null`.
    pub fn new(key: &str, value: impl Into<Value>) -> Self {
        Self(Map::from_iter([(key.to_owned(), value.into())]))
    }

    /// Adds a key, unless its value is `null`.
    pub fn add(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.0.insert(key.to_owned(), value);
        }
    }
}

impl Index<&str> for Object {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        &self.0[key]
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        object.0.into()
    }
}

/// Returns an error with its causes.
pub fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// Writes an error and its causes to standard error.
pub fn report(error: &dyn Error) {
    error_line(&format!("urxe: {}", describe(error)));
}

/// Writes a note, which is not an error, to standard error.
pub fn note(message: &str) {
    error_line(&format!("urxe: note: {message}"));
}

/// Returns a bar on standard error, if that is a terminal.
pub fn progress_bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

/// Columns where neither a terminal nor `COLUMNS` defines them.
const DEFAULT_WIDTH: usize = 100;
/// The smallest width of tables and texts, in columns.
const MIN_WIDTH: usize = 60;

/// Returns the columns of standard output.
fn width() -> usize {
    let columns = || environment::value("COLUMNS")?.to_str()?.parse().ok();
    let width = Table::new().width().map(usize::from).or_else(columns);
    width.unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH)
}

/// Breaks a text between words into lines that fit standard output. The first line begins with
/// `first`, the others with `rest`.
pub fn wrap(first: &str, rest: &str, text: &str) -> String {
    wrap_to(width(), first, rest, text)
}

fn wrap_to(width: usize, first: &str, rest: &str, text: &str) -> String {
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push_str(&line);
            lines.push('\n');
            (line, is_empty) = (rest.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines + &line
}

/// Returns a table whose columns from `numbers` on are right-aligned.
pub fn table(heads: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(heads);
    for line in [TableComponent::HeaderLines, TableComponent::MiddleHeaderIntersections] {
        table.set_style(line, '─');
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width().try_into().unwrap_or(u16::MAX));
    for (nr, column) in table.column_iter_mut().enumerate() {
        // Columns are one space apart without padding.
        column.set_padding((if nr == 0 { 0 } else { 1 }, 0));
        if nr >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The environment variable with the log filter.
const LOG_VARIABLE: &str = "URXE_LOG";

/// The error of an invalid `URXE_LOG`.
#[derive(Debug, thiserror::Error)]
#[error(
    "{LOG_VARIABLE}={given:?} is not a log filter; use for example {LOG_VARIABLE}=debug or \
     {LOG_VARIABLE}=urxe_device=trace"
)]
pub struct BadFilter {
    /// The value.
    given: String,
    /// The parser's error.
    #[source]
    error: ParseError,
}

/// Starts logging for the life of the process. `default` applies if the environment variable is
/// unset.
pub fn start_logging(default: &str) -> Result<(), BadFilter> {
    let given = environment::value(LOG_VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
    let filter = if given.trim().is_empty() { default } else { &given };
    // Reports, such as the end of a capture, appear whatever modules the filter names.
    let filter = match filter.trim() {
        "off" => filter.to_owned(),
        _ => format!("{filter},urxe_report=error"),
    };
    let filter =
        EnvFilter::try_new(&filter).map_err(|error| BadFilter { given: given.clone(), error })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .fmt_fields(
            debug_fn(|out, field, value| match field.name() {
                "message" => write!(out, "{}", Escaped(format_args!("{value:?}"))),
                name => write!(out, "{name}={}", Escaped(format_args!("{value:?}"))),
            })
            .delimited(" "),
        )
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_only() {
        let text = "one two three-four five_six";
        assert_eq!(wrap_to(60, "- ", "  ", text), "- one two three-four five_six");
        assert_eq!(wrap_to(11, "- ", "  ", text), "- one two\n  three-four\n  five_six");
        assert_eq!(wrap_to(60, "a:", "", ""), "a:");
    }
}
