//! Runs the `urxe` binary with a separate configuration folder.

use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A time limit that exceeds every run.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The result of a run of the binary.
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
    /// Returns standard output of a run that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Returns the JSON that a run must have printed, which must have succeeded.
    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }

    /// Returns standard error of a run that must have failed with `code`.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// A command or process whose run can be awaited.
pub trait Finish {
    /// Waits for the end; kills the process at the time limit.
    fn finish(self) -> Run;
}

impl Finish for &mut Command {
    #[track_caller]
    fn finish(self) -> Run {
        self.spawn().expect("the binary runs").finish()
    }
}

impl Finish for Child {
    #[track_caller]
    fn finish(self) -> Run {
        let pid = Pid::from_child(&self);
        let (sender, ended) = channel::<()>();
        let watch = std::thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = self.wait_with_output().expect("its output can be read");
        drop(sender);
        watch.join().expect("it only waits");
        output.into()
    }
}

/// A process that is killed if the test ends before it.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().expect("the binary runs")))
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("only `finish` takes the process")
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("only `finish` takes the process")
    }
}

impl Finish for Running {
    #[track_caller]
    fn finish(mut self) -> Run {
        self.0.take().expect("only `finish` takes the process").finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the command with these words and piped output.
pub fn urxe(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urxe"));
    command.args(words.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["URXE_DEVICES", "URXE_LOG", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

/// Returns a run with these words.
#[track_caller]
pub fn run(words: &str) -> Run {
    urxe(words).finish()
}

/// A process that listens.
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
        assert!(said.starts_with("listening on TCP "), "{said:?} {:?}", child.finish());
        Self { child, stdout, said }
    }

    /// Returns the run, with the output after the first line.
    #[track_caller]
    pub fn finish(mut self) -> Run {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        Run { stdout: rest, ..self.child.finish() }
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

    /// Returns the command with these words.
    pub fn urxe(&self, words: &str) -> Command {
        let mut command = urxe(words);
        command.env("XDG_CONFIG_HOME", self.home.path());
        command
    }

    /// Returns a run with these words.
    #[track_caller]
    pub fn run(&self, words: &str) -> Run {
        self.urxe(words).finish()
    }

    /// Returns the user's list of links.
    pub fn links(&self) -> PathBuf {
        self.home.path().join("urxe/links")
    }
}

/// Returns a capture of real kernels.
pub fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/testdata").join(name)
}
