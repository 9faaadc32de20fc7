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

/// Builds `urxe` and `liburxe.so` as this test was built, and beside it; where they are. What other packages make cannot be asked for
/// in `Cargo.toml`.
pub fn build_urxe() -> Result<[PathBuf; 2], Error> {
    let folder = Path::new(URXE_PEER).parent().unwrap_or(Path::new("."));
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        // Cargo's only folder that is not named after its profile.
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "build",
            "--quiet",
            "-p",
            "urxe-tools",
            "-p",
            "urxe-abi",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(folder.parent().unwrap_or(folder))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    let output = command.output().map_err(|source| Error::Io { action: "start cargo".to_owned(), source })?;
    if output.status.success() {
        return Ok(["urxe", "liburxe.so"].map(|name| folder.join(name)));
    }
    Err(Error::Status {
        command: "cargo build -p urxe-tools -p urxe-abi".to_owned(),
        status: output.status.code().unwrap_or(-1),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
