//! What can keep a kernel peer from working; each variant shows enough to act on.

use std::{io, time::Duration};

/// Why the harness, or a command in it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine lacks something; `remedy` is the command that brings it.
    #[error("kernel peers need what this machine lacks:\n{}\nremedy: {remedy}", list(.what))]
    Missing {
        /// Each thing that is missing.
        what: Vec<String>,
        /// What to run.
        remedy: String,
    },
    /// A system call failed.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A command ended with another status than zero.
    #[error("`{command}` ended with status {status}:\n{output}")]
    Status {
        /// The command line.
        command: String,
        /// Exit status; -1 when a signal ended it or its guest went away.
        status: i32,
        /// Standard output and error.
        output: String,
    },
    /// A command that talked to a guest which has died.
    #[error("`{command}`: given up, since a guest has died; it said\n{output}")]
    Abandoned {
        /// The command.
        command: String,
        /// What it had printed.
        output: String,
    },
    /// A command did not end, or not say what was waited for, in time.
    #[error("`{command}`: {waited_for} not within {limit:?}; so far:\n{output}")]
    Timeout {
        /// The command line.
        command: String,
        /// Its end, or a text in its output.
        waited_for: String,
        /// The limit.
        limit: Duration,
        /// Standard output and error.
        output: String,
    },
    /// A guest did not come up, or died.
    #[error("guest {guest}: {reason}; its console:\n{console}")]
    Guest {
        /// The guest's kernel.
        guest: String,
        /// What it did.
        reason: &'static str,
        /// The last lines of its console.
        console: String,
    },
    /// A file or an output is not of the form expected.
    #[error("{what}: {text}")]
    Malformed {
        /// Which.
        what: &'static str,
        /// The part that was not understood.
        text: String,
    },
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
