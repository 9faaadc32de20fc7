//! The programs under test: `urxe`, and this package's own `urxe-peer` and `urxe-group`.

use std::path::PathBuf;

use urxe_tests::{build::build, kernel::Error};

/// Built together with this test.
pub const URXE_PEER: &str = env!("CARGO_BIN_EXE_urxe-peer");
/// As well.
pub const URXE_GROUP: &str = env!("CARGO_BIN_EXE_urxe-group");

/// Builds `urxe` and `liburxe.so`; where they are.
pub fn build_urxe() -> Result<[PathBuf; 2], Error> {
    build(["urxe", "liburxe.so"])
        .map_err(|source| Error::Io { action: "build urxe and liburxe.so".to_owned(), source })
}
