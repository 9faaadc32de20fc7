//! One command of an entry: shown, run, its output passed on and its tests counted.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;

use crate::tally::Tally;

/// Why an entry did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The entry's arguments are wrong.
    Usage(&'static str),
    /// A command ended with an error; it has said why.
    Step {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it said.
        last: Vec<String>,
    },
    /// A command could not be started.
    Start {
        /// The command.
        command: String,
        /// The reason.
        error: io::Error,
    },
    /// The machine lacks something.
    Lacks {
        /// What.
        what: String,
        /// How to get it.
        remedy: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(expected) => write!(f, "expected: cargo xtask {expected}"),
            Self::Step { command, status, .. } => write!(f, "failed ({status}): {command}"),
            Self::Start { command, error } => write!(f, "cannot start ({error}): {command}"),
            Self::Lacks { what, remedy } => write!(f, "this machine lacks {what}; {remedy}"),
        }
    }
}

/// A command to be run in the workspace's root.
pub struct Step {
    command: Command,
    /// As a person would type it.
    shown: String,
}

impl Step {
    /// A program with arguments.
    pub fn new(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root());
        Self {
            command,
            shown: std::iter::once(program)
                .chain(arguments.iter().copied())
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    /// `cargo` with arguments.
    pub fn cargo(arguments: &[&str]) -> Self {
        Self::new("cargo", arguments)
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self.shown.push(' ');
        self.shown.push_str(argument);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self.shown = if value.contains(' ') {
            format!("{name}='{value}' {}", self.shown)
        } else {
            format!("{name}={value} {}", self.shown)
        };
        self
    }

    /// Builds in a target folder of its own, since compiler flags or toolchain differ.
    pub fn target_folder(self, name: &str) -> Self {
        let folder = target_folder().join(name);
        self.env("CARGO_TARGET_DIR", &folder.display().to_string())
    }

    /// Runs the command and counts its tests; counts the command itself if it has none.
    pub fn run(mut self, tally: &mut Tally) -> Result<(), Failure> {
        println!("\n$ {}", self.shown);
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |error| Failure::Start { command: self.shown.clone(), error };
        let mut child = self.command.spawn().map_err(start)?;
        let heard = Mutex::new(Heard::default());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let heard = &heard;
            scope.spawn(move || pass_on(stdout, &mut io::stdout(), heard));
            scope.spawn(move || pass_on(stderr, &mut io::stderr(), heard));
        });
        let status = child.wait().map_err(start)?;
        let Heard { mut counted, last } = heard.into_inner().unwrap_or_default();
        match status.success() {
            true if counted.is_empty() => counted.passed = 1,
            // A build that fails, or a program that dies, has counted nothing.
            false if counted.failed == 0 => counted.failed = 1,
            _ => {}
        }
        tally.add(counted);
        if status.success() {
            Ok(())
        } else {
            Err(Failure::Step { command: self.shown, status, last: last.into() })
        }
    }
}

/// What is kept of a command's output.
#[derive(Default)]
struct Heard {
    counted: Tally,
    last: VecDeque<String>,
}

/// How many of a command's last lines are kept: test programs end with the names of what failed,
/// and often why.
pub const LAST_LINES: usize = 80;

impl Heard {
    fn take(&mut self, line: &str) {
        self.counted.read(line);
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line.trim_end().to_owned());
    }
}

/// Copies a child's output to ours line by line, counting.
fn pass_on(from: Option<impl Read>, to: &mut impl Write, heard: &Mutex<Heard>) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    // When nobody reads our output any more, the child is still to be read to its end.
    while lines.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        let _ = to.write_all(&line).and_then(|()| to.flush());
        if let Ok(mut heard) = heard.lock() {
            heard.take(&String::from_utf8_lossy(&line));
        }
        line.clear();
    }
}

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// The folder that builds go to.
pub fn target_folder() -> PathBuf {
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root().join(folder)
}
