//! What can keep a kernel peer from working; each variant shows enough to act on.

use std::{io, time::Duration};

/// Why the harness, or a command in it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum Error {
    /// The machine lacks something; `remedy` is the command that brings it.
    #[error("kernel peers need what this machine lacks:\n{}\nremedy: {remedy}", list(.what))]
    Missing { what: Vec<String>, remedy: String },
    /// A system call failed.
    #[error("{action}: {source}")]
    Io { action: String, source: io::Error },
    /// A command ended with another status than zero; -1 when a signal ended it or its guest went
    /// away.
    #[error("`{command}` ended with status {status}:\n{output}")]
    Status { command: String, status: i32, output: String },
    /// A command that talked to a guest which has died.
    #[error("`{command}`: given up, since a guest has died; it said\n{output}")]
    Abandoned { command: String, output: String },
    /// A command did not end, or not say what was waited for, in time.
    #[error("`{command}`: {waited_for} not within {limit:?}; so far:\n{output}")]
    Timeout { command: String, waited_for: String, limit: Duration, output: String },
    /// A guest did not come up, or died.
    #[error("guest {guest}: {reason}; its console:\n{console}")]
    Guest { guest: String, reason: &'static str, console: String },
    /// A file or an output is not of the form expected.
    #[error("{what}: {text}")]
    Malformed { what: &'static str, text: String },
}

fn list(what: &[String]) -> String {
    what.iter().map(|each| format!("  - {each}")).collect::<Vec<_>>().join("\n")
}

/// Adds what was tried to an I/O error.
pub(super) trait Context<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action: action(), source })
    }
}
