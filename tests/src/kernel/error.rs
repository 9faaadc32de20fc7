//! The errors of the harness for kernel peers. Each variant shows enough to act on.

use std::{io, time::Duration};

/// An error of the harness, or of a command in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum Error {
    /// The machine lacks a requirement; `remedy` is the command that installs it.
    #[error("this machine lacks requirements of the kernel peers:\n{}\nremedy: {remedy}",
        list(.what))]
    Missing { what: Vec<String>, remedy: String },
    /// A system call failed.
    #[error("{action}: {source}")]
    Io { action: String, source: io::Error },
    /// A command ended with a status other than zero; -1 if a signal ended it or its guest is gone.
    #[error("`{command}` ended with status {status}:\n{output}")]
    Status { command: String, status: i32, output: String },
    /// A command was abandoned because the guest that it talks to has died.
    #[error("`{command}`: abandoned because a guest died; output:\n{output}")]
    Abandoned { command: String, output: String },
    /// A command did not end, or did not print an expected text, in time.
    #[error("`{command}`: {waited_for} not within {limit:?}; output so far:\n{output}")]
    Timeout { command: String, waited_for: String, limit: Duration, output: String },
    /// A guest did not start, or died.
    #[error("guest {guest}: {reason}; its console:\n{console}")]
    Guest { guest: String, reason: &'static str, console: String },
    /// A file or an output has an unexpected form.
    #[error("{what}: {text}")]
    Malformed { what: &'static str, text: String },
}

fn list(what: &[String]) -> String {
    what.iter().map(|each| format!("  - {each}")).collect::<Vec<_>>().join("\n")
}

/// Adds the attempted action to an I/O error.
pub(super) trait Context<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action: action(), source })
    }
}
