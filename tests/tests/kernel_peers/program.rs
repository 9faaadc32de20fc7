//! The programs under test: `urxe`, and this package's own `urxe-peer` and `urxe-group`.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use urxe_tests::kernel::Error;

/// Built together with this test.
pub const URXE_PEER: &str = env!("CARGO_BIN_EXE_urxe-peer");
/// As well.
pub const URXE_GROUP: &str = env!("CARGO_BIN_EXE_urxe-group");

/// Builds `urxe` as this test was built, and beside it; where that is. Another package's program cannot be asked for in
/// `Cargo.toml`.
pub fn build_urxe() -> Result<PathBuf, Error> {
    let folder = Path::new(URXE_PEER).parent().unwrap_or(Path::new("."));
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        // Cargo's only folder that is not named after its profile.
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--quiet", "-p", "urxe-tools", "--bin", "urxe", "--profile", profile, "--target-dir"])
        .arg(folder.parent().unwrap_or(folder))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    let output = command.output().map_err(|source| Error::Io { action: "start cargo".to_owned(), source })?;
    if output.status.success() {
        return Ok(folder.join("urxe"));
    }
    Err(Error::Status {
        command: "cargo build -p urxe-tools".to_owned(),
        status: output.status.code().unwrap_or(-1),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
