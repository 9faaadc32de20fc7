//! Passes the version nodes of the C ABI to the linker.
//!
//! The nodes name no symbols, because each symbol names its node itself (`src/exports`). All other
//! symbols are local. rustc passes a version script of its own, which also says this. rust-lld, the
//! default linker of rustc, accepts both scripts, and zig's linker takes this one.

use std::path::PathBuf;
use std::{env, fs};

/// All version nodes of rdma-core 44 to 65; each node inherits from the one before it.
const NODES: [&[&str]; 2] = [
    &[
        "IBVERBS_1.0",
        "IBVERBS_1.1",
        "IBVERBS_1.5",
        "IBVERBS_1.6",
        "IBVERBS_1.7",
        "IBVERBS_1.8",
        "IBVERBS_1.9",
        "IBVERBS_1.10",
        "IBVERBS_1.11",
        "IBVERBS_1.12",
        "IBVERBS_1.13",
        "IBVERBS_1.14",
        "IBVERBS_1.15",
        "IBVERBS_1.16",
        "IBVERBS_1.17",
        "IBVERBS_1.18",
    ],
    &["RDMACM_1.0", "RDMACM_1.1", "RDMACM_1.2", "RDMACM_1.3", "RDMACM_1.4", "RDMACM_1.5"],
];

/// Nodes of rdma-core's private symbols. They do not inherit; rdma-core adds one whenever the
/// symbols change.
const PRIVATE: [&str; 5] = [
    "IBVERBS_PRIVATE_34",
    "IBVERBS_PRIVATE_57",
    "IBVERBS_PRIVATE_59",
    "IBVERBS_PRIVATE_64",
    "IBVERBS_PRIVATE_65",
];

/// The node whose rule makes all other symbols local. It has default versions (`@@`) only, because
/// the rule also matches the other versions of its node (`@`).
const OTHERS: &str = "RDMACM_1.5";

fn main() {
    let mut script = String::new();
    for chain in NODES {
        let mut before = "";
        for &node in chain {
            let rule = if node == OTHERS { "local: *;" } else { "" };
            script.push_str(&format!("{node} {{ {rule} }} {before};\n"));
            before = node;
        }
    }
    for node in PRIVATE {
        script.push_str(&format!("{node} {{ }};\n"));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let path = out.join("versions.map");
    fs::write(&path, script).expect("cargo's OUT_DIR can be written");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", path.display());
    // The library has no DT_SONAME, so that ldconfig(8) takes each link to the library by the name
    // of the link: `urxe install --system-wide`.
    // The background thread of a device runs code of the library, so the library stays mapped when
    // the program closes its handle.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
