//! Processes that tests start. Builds `urxe` and its libraries, which other packages produce and
//! `Cargo.toml` therefore cannot request, and ends child processes.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The build targets of [`build`]: the libraries of the workspace's default members, the command
/// and its manual. The example is included for its dependencies, so that cargo builds them with the
/// features of the workspace's tests and reuses earlier builds.
pub const TARGETS: [&str; 7] =
    ["--lib", "--bin", "urxe", "--bin", "urxe-manual", "--example", "ping_pong"];

/// The workspace's root, where cargo selects the default members.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Builds with the profile and target folder of the running test. Returns the paths of the files
/// with these names.
///
/// # Errors
///
/// If cargo does not start, or fails. Cargo has printed the reason on standard error.
pub fn build<const N: usize>(names: [&str; N]) -> io::Result<[PathBuf; N]> {
    let test = env::current_exe()?;
    // target/PROFILE/deps/TEST
    let folder = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        // The only folder of cargo that does not have the name of its profile.
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet"]).args(TARGETS).args(["--profile", profile, "--target-dir"]);
    command.arg(folder.parent().unwrap_or(folder)).current_dir(WORKSPACE);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("cargo build {}: {status}", TARGETS.join(" "))));
    }
    Ok(names.map(|name| folder.join(name)))
}

/// A child process that is killed when this value is dropped.
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
        // Both calls fail for a child that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
