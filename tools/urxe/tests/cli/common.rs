//! Running the `urxe` binary, with a configuration folder of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// More than any run here takes.
pub const LIMIT: Duration = Duration::from_secs(120);

/// What a run of the binary gave.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is text");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Run {
    /// Standard output of a run that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Standard error of a run that must have failed with `code` and printed no result.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// The command with these words, whose output is read.
pub fn urxe(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urxe"));
    command.args(words.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["URXE_DEVICES", "URXE_LOG", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

/// Its output; kills it at the limit.
#[track_caller]
pub fn finish(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (sender, ended) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let output = child.wait_with_output().expect("its output can be read");
    drop(sender);
    watch.join().expect("it only waits");
    output
}

/// The output of a run with these words.
#[track_caller]
pub fn run(words: &str) -> Output {
    finish(urxe(words).spawn().expect("the binary runs"))
}

/// Standard output of a run that must have succeeded.
#[track_caller]
pub fn ok(output: Output) -> String {
    Run::from(output).ok()
}

/// Standard error of a run that must have failed with `code`.
#[track_caller]
pub fn fails(output: Output, code: i32) -> String {
    Run::from(output).fails(code)
}

/// The object that a run has printed.
#[track_caller]
pub fn json(output: Output) -> Value {
    serde_json::from_str(&ok(output)).expect("JSON")
}

/// A process that listens, once it does.
pub struct Listening {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub said: String,
}

impl Listening {
    #[track_caller]
    pub fn start(words: &str) -> Self {
        let mut child = urxe(words).spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        stdout.read_line(&mut said).unwrap();
        assert!(said.starts_with("listening on TCP "), "{said:?} {:?}", finish(child));
        Self { child, stdout, said }
    }

    /// Its output after the first line.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        Output { stdout: rest, ..finish(self.child) }
    }
}

/// A user without configuration.
pub struct User {
    home: tempfile::TempDir,
}

impl User {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The command, to be given arguments.
    pub fn command(&self) -> Command {
        let mut command = urxe("");
        command.env("XDG_CONFIG_HOME", self.home.path());
        command
    }

    /// Runs the binary with these arguments, separated by blanks.
    pub fn run(&self, arguments: &str) -> Run {
        self.command().args(arguments.split_whitespace()).output().expect("the binary runs").into()
    }

    /// The user's list of links.
    pub fn links(&self) -> PathBuf {
        self.home.path().join("urxe/links")
    }
}

/// A capture of real kernels.
pub fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/testdata").join(name)
}
