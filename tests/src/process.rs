//! Processes that tests start: building `urxe` and its libraries, which other packages make, so
//! that they cannot be asked for in `Cargo.toml`; and an end for every process.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What is built, for [`build`]: the workspace's libraries and the command. The example is there
/// for what it depends on: with it, cargo takes the dependencies as the whole workspace's tests
/// have them, and has all but the last step done already.
pub const TARGETS: [&str; 6] = ["--workspace", "--lib", "--bin", "urxe", "--example", "ping_pong"];

/// Builds as the running test was built, and beside it: the files of the target folder with these
/// names.
///
/// # Errors
///
/// Cargo does not start, or fails; it has said why on standard error.
pub fn build<const N: usize>(names: [&str; N]) -> io::Result<[PathBuf; N]> {
    let test = env::current_exe()?;
    // target/PROFILE/deps/TEST
    let folder = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        // Cargo's only folder that is not named after its profile.
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet"]).args(TARGETS).args(["--profile", profile, "--target-dir"]);
    command.arg(folder.parent().unwrap_or(folder)).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("cargo build {}: {status}", TARGETS.join(" "))));
    }
    Ok(names.map(|name| folder.join(name)))
}

/// A child that is killed when this is dropped, unless it has ended by itself.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both fail when it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
