//! libfabric over its verbs provider: the offers of `fi_info`, and `fi_pingpong` over each type of
//! endpoint, with validation. Connected endpoints use librdmacm, datagram endpoints use address
//! handles, and `rdm` is the first layer of libfabric above them.
//!
//! `tests/programs/libfabric.sh` runs the programs in a network namespace of its own. The default
//! device is on a loopback interface, which libfabric finds by the preloaded library only.

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
    let played = ["127.0.0.1", "10.79.0.1"].map(|address| {
        let (_, after) = text.split_once(&format!("fi_info over {address}\n")).expect("it ran");
        (address, after.split("fi_info over").next().unwrap_or_default())
    });
    for (address, text) in played {
        for offered in
            ["domain: rxe0\n", "type: FI_EP_MSG", "type: FI_EP_DGRAM", "provider: verbs;ofi_rxm"]
        {
            assert!(text.contains(offered), "{offered} of {address} is not in\n{text}");
        }
    }
    // Each end prints a row for each size, of which the first is 64 bytes.
    let rows = |text: &str| {
        text.lines().filter(|line| line.starts_with("64 ") && line.contains("=20")).count()
    };
    for ((address, text), endpoints) in
        played.into_iter().zip([&["msg", "rdm"][..], &["msg", "dgram", "rdm"]])
    {
        for endpoint in endpoints {
            let title = format!("fi_pingpong {endpoint} over {address}\n");
            let (_, of_it) = text.split_once(&title).expect("it was begun");
            let of_it = of_it.split("fi_pingpong").next().unwrap_or_default();
            assert_eq!(rows(of_it), 2, "of {title} in\n{text}");
        }
    }
}
