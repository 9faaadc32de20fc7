//! libfabric over its verbs provider: what `fi_info` finds, and `fi_pingpong` over each type of
//! endpoint, with validation. Connected endpoints go by librdmacm, datagrams by address handles;
//! `rdm` is whichever layer of libfabric comes first over these.
//!
//! `tests/programs/libfabric.sh` runs them, in a network namespace of its own.

use std::path::Path;
use std::process::Command;

use crate::install::{install, ok};
use crate::pair::exclusive;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/libfabric.sh");

#[test]
fn every_type_of_endpoint_plays() {
    let _exclusive = exclusive();
    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    let text = ok(unshare.arg(Path::new(SCRIPT)).arg(install().path("bin/urxe")));
    for offered in
        ["domain: rxe0\n", "type: FI_EP_MSG", "type: FI_EP_DGRAM", "provider: verbs;ofi_rxm"]
    {
        assert!(text.contains(offered), "{offered} is not in\n{text}");
    }
    // Each end has a row for each of its sizes, of which the first is 64 bytes.
    let rows = |text: &str| {
        text.lines().filter(|line| line.starts_with("64 ") && line.contains("=20")).count()
    };
    for endpoint in ["msg", "dgram", "rdm"] {
        let (_, of_it) =
            text.split_once(&format!("fi_pingpong {endpoint}\n")).expect("it was begun");
        let of_it = of_it.split("fi_pingpong").next().unwrap_or_default();
        assert_eq!(rows(of_it), 2, "of {endpoint} in\n{text}");
    }
}
