//! Running the `urxe` binary, with a configuration folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_urxe"));
        command.env("XDG_CONFIG_HOME", self.home.path());
        for variable in ["URXE_DEVICES", "URXE_LOG", "RUST_LOG"] {
            command.env_remove(variable);
        }
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
