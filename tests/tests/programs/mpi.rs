//! Debian's MPICH and Open MPI over UCX and libfabric: four ranks exchange messages, use
//! collectives and access each other's memory, and captures prove that RDMA carried the data.
//!
//! `tests/programs/mpi.sh` runs the ranks in a network namespace of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::install::{install, ok};
use crate::pair::exclusive;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
/// The libraries and their ways to RDMA, as `mpi.sh` names its captures.
const WAYS: [&str; 3] = ["mpich-ucx", "openmpi-ucx", "openmpi-libfabric"];
/// The least number of bytes that the program's ranks send to each other: four messages of 1 MiB.
const BYTES: u64 = 4 << 20;

#[test]
fn four_ranks_exchange_their_data_by_rdma() {
    let _exclusive = exclusive();
    let folder = install().path("mpi");
    fs::create_dir(&folder).unwrap();
    for library in ["mpich", "openmpi"] {
        let mut compiler = Command::new(format!("mpicc.{library}"));
        compiler.args(["-Wall", "-Werror", "-O1", "-o"]);
        compiler.arg(folder.join(format!("mpi-{library}")));
        ok(compiler.arg(Path::new(FOLDER).join("recipes/mpi.c")));
    }
    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    let script = Path::new(FOLDER).join("mpi.sh");
    let text = ok(unshare.arg(script).arg(install().path("bin/urxe")).arg(&folder));
    assert_eq!(text.matches("4 ranks verified").count(), WAYS.len(), "{text}");
    for way in WAYS {
        let bytes = bytes_by_rdma(&folder, way);
        assert!(bytes >= BYTES, "{way}: RDMA carried {bytes} bytes only");
    }
}

/// Returns the payload bytes of reliable connections in the captures of this name. Each packet is
/// in the captures of both ends.
fn bytes_by_rdma(folder: &Path, name: &str) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
    });
    let mut bytes = 0;
    for file in files {
        let mut decode = Command::new(install().path("bin/urxe"));
        for line in ok(decode.args(["decode", "--json"]).arg(file)).lines() {
            let packet: Value = serde_json::from_str(line).unwrap();
            if packet["bth"]["name"].as_str().is_some_and(|name| name.starts_with("RC ")) {
                bytes += packet["payload_len"].as_u64().unwrap_or_default();
            }
        }
    }
    bytes / 2
}
