//! Files that `rcopy` copies over rsockets to and from a kernel, compared by checksum. The server
//! has no option except its port.

use std::thread::sleep;
use std::time::Duration;

use urxe_tests::kernel::{Series, Testbed};
use urxe_tests::programs::is_early;

use crate::case::{Case, Failure};
use crate::connections::{START_DELAYS, start};
use crate::nodes::{Family, Node, roles};

/// The numbers of 64 KiB blocks in a file: more than an rsocket's buffers hold, and 100 MiB, which
/// take a dozen seconds.
const SHORT: usize = 64;
const LONG: usize = 1_600;
const LIMIT: Duration = Duration::from_secs(600);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = Vec::new();
    for series in both {
        for (size, pieces) in [("", SHORT), ("much_", LONG)] {
            for (role, serves) in [("serves", true), ("client_of", false)] {
                let case =
                    Case::new(format!("rcopy::{size}{role}_{}", series.name()), move |testbed| {
                        copy(testbed, series, pieces, serves)
                    });
                cases.push(if pieces == LONG { case.long() } else { case });
            }
        }
    }
    cases
}

/// Creates a file at the client, copies it, and compares.
fn copy(testbed: &Testbed, series: Series, pieces: usize, serves: bool) -> Result<(), Failure> {
    let (server, client) = roles(testbed, series, serves);
    let make = format!("dd if=/dev/urandom of=copied-from bs=65536 count={pieces} 2>/dev/null");
    shell(testbed, client, &make)?;
    copy_file(server, client)?;
    let [from, to] = [(client, "copied-from"), (server, "copied-to")]
        .map(|(node, name)| shell(testbed, node, &format!("sha256sum <{name} && rm {name}")));
    let (from, to) = (from?, to?);
    if from == to {
        return Ok(());
    }
    Err(Failure::Program(format!("the copy differs: {from} {to}")))
}

fn copy_file(server: Node<'_>, client: Node<'_>) -> Result<(), Failure> {
    let words = format!("rcopy copied-from {}:copied-to", server.address(Family::V4));
    let mut early = String::new();
    for start_delay in START_DELAYS {
        let _serving = start(false, "rcopy", Family::V4, server, None)?;
        sleep(start_delay);
        let finished = start(false, &words, Family::V4, client, None)?.finish(LIMIT)?;
        if !is_early(&finished.output) {
            finished.ok()?;
            return Ok(());
        }
        early = finished.output;
    }
    Err(Failure::Program(format!("no server listened: {early}")))
}

/// Runs a shell command in the folder of an end's programs. Returns the output.
fn shell(testbed: &Testbed, node: Node<'_>, script: &str) -> Result<String, Failure> {
    let job = match node {
        Node::Kernel(guest) => guest.start(script)?,
        Node::Urxe(_) => testbed.unprivileged("sh").args(["-c", script]).start()?,
    };
    Ok(job.finish(LIMIT)?.ok()?)
}
