//! The symbols of `liburxe.so` with their versions, compared with those of Debian's libraries in
//! `tests/programs/symbols`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::{install, ok};

const FOLDER: &str = "/usr/lib";

fn kept(name: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/symbols").join(name);
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the names and versions of the symbols that a library defines. Version nodes have no
/// section and are left out.
fn defined(library: &Path) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    let text = ok(nm.args(["-D", "--with-symbol-versions", "--defined-only"]).arg(library));
    let symbols = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    symbols.filter(|fields| fields[1] != "A").map(|fields| fields[2].to_owned()).collect()
}

/// Returns the symbols of a library that neither the list of this name nor `newer.txt` has. A
/// symbol of two nodes has only one default version (`@@`), which is not compared.
pub fn unknown_in(library: &Path, list: &str) -> Vec<String> {
    let plain = |symbol: &String| symbol.replace("@@", "@");
    let known: BTreeSet<String> = kept(list).union(&kept("newer.txt")).map(plain).collect();
    defined(library).iter().map(plain).filter(|symbol| !known.contains(symbol)).collect()
}

fn debian(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{}-linux-gnu", std::env::consts::ARCH)).join(name)
}

#[test]
fn there_is_every_symbol_of_rdma_core_with_its_version_and_nothing_else() {
    let wanted: BTreeSet<String> = ["libibverbs-44.txt", "librdmacm-44.txt", "newer.txt"]
        .iter()
        .flat_map(|f| kept(f))
        .collect();
    let ours = defined(&install().path("lib/liburxe.so"));
    let missing: Vec<_> = wanted.difference(&ours).collect();
    let leaked: Vec<_> = ours.difference(&wanted).collect();
    assert!(missing.is_empty() && leaked.is_empty(), "missing {missing:?}, too many {leaked:?}");
}

#[test]
fn debians_libraries_have_no_symbol_that_is_not_kept() {
    for (library, list) in
        [("libibverbs.so.1", "libibverbs-44.txt"), ("librdmacm.so.1", "librdmacm-44.txt")]
    {
        let unknown = unknown_in(&debian(library), list);
        assert!(unknown.is_empty(), "{library}: {unknown:?}");
    }
}
