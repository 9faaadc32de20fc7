//! How results and errors reach the person.

use std::error::Error;
use std::io::{self, IsTerminal, LineWriter, Write};

use serde::Serialize;

/// Standard output: by line for a terminal, so that slow work shows as it goes; in large pieces for
/// a pipe.
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

/// Tells an error and its causes on standard error.
pub fn report(error: &dyn Error) {
    let mut message = format!("urxe: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = inner.source();
    }
    // Nobody may be reading standard error either; there is no one left to tell.
    let _ = writeln!(io::stderr(), "{message}");
}

/// Tells something that is no error on standard error.
pub fn note(message: &str) {
    let _ = writeln!(io::stderr(), "urxe: note: {message}");
}
