//! How results, errors and log lines reach the person.

use std::error::Error;
use std::io::{self, IsTerminal, LineWriter, Write};
use std::ops::Index;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Returns standard output. A terminal receives each line at once, so that slow work shows
/// progress. A pipe receives large pieces.
pub fn stdout() -> Box<dyn Write> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        Box::new(LineWriter::new(stdout.lock()))
    } else {
        Box::new(io::BufWriter::with_capacity(64 * 1024, stdout.lock()))
    }
}

/// Writes `value` as JSON, indented, with a line feed.
pub fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
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
    // A failed write is ignored, because there is no other place to report to.
    let _ = writeln!(io::stderr(), "urxe: {}", describe(error));
}

/// Writes a note, which is not an error, to standard error.
pub fn note(message: &str) {
    let _ = writeln!(io::stderr(), "urxe: note: {message}");
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

/// Returns a table whose columns from `numbers` on are numbers.
pub fn table(heads: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(heads);
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The environment variable with the log filter.
const LOG_VARIABLE: &str = "URXE_LOG";

/// `URXE_LOG` does not follow its grammar.
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

/// Starts logging for the life of the process; by `default` if the environment variable does not
/// choose.
pub fn start_logging(default: &str) -> Result<(), BadFilter> {
    let given = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let filter = if given.trim().is_empty() { default } else { &given };
    let filter =
        EnvFilter::try_new(filter).map_err(|error| BadFilter { given: given.clone(), error })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
    Ok(())
}
