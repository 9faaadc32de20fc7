//! Connection requests to an address where no stack listens, over both kernels and over urxe.
//!
//! The host of the address answers each request with the ICMP message "port unreachable". The
//! message changes neither the event that ends the request nor its time. urxe names it in the log.

use std::time::Duration;

use urxe_tests::kernel::{HOST_V4, Testbed};

use crate::case::{Case, Failure, must_contain};
use crate::connections::start;
use crate::nodes::{Family, Node, urxe};

/// The port spaces of the requests.
const SPACES: [&str; 2] = ["tcp", "udp"];
/// Addresses of urxe's end and of its peer. Guests ask for a port of the bridge, where nothing
/// listens either.
const HERE: [u8; 4] = [127, 91, 0, 1];
const THERE: &str = "127.91.0.2";
/// The event of a request without an answer.
const EVENT: &str = "RDMA_CM_EVENT_UNREACHABLE -110";
/// Milliseconds until the event: 16 requests, 4.8 s apart, and with 6.1 6.4 s apart.
const EXPECTED_MS: std::ops::Range<u32> = 50_000..150_000;
const END_LIMIT: Duration = Duration::from_secs(240);

pub fn cases() -> Vec<Case> {
    vec![Case::new("refused::requests_end_as_over_kernels", all).long()]
}

/// Runs all requests at once, because each takes more than a minute.
fn all(testbed: &Testbed) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for space in SPACES {
        for guest in testbed.guests() {
            let (node, words) = (Node::Kernel(guest), format!("refused_port {space} {HOST_V4}"));
            let name = guest.kernel().series.name();
            jobs.push((name, space, start(false, &words, Family::V4, node, None)?));
        }
        let program = testbed.installed("refused_port");
        let words = format!("run -- {} {space} {THERE}", program.display());
        let command = urxe(testbed, HERE.into()).env("URXE_LOG", "warn").words(&words);
        jobs.push(("urxe", space, command.start()?));
    }
    let mut failed = Vec::new();
    let of = jobs.len();
    for (who, space, job) in jobs {
        let output = job.finish(END_LIMIT)?.ok()?;
        let ms = output
            .lines()
            .find_map(|line| line.strip_prefix(EVENT)?.trim().parse().ok())
            .unwrap_or_default();
        eprintln!("{who}, {space}: {ms} ms");
        if !EXPECTED_MS.contains(&ms) {
            failed.push(format!("{who}, {space}: {output}"));
        }
        if who == "urxe" {
            must_contain("refused_port", &output, "(ICMP: port unreachable)")?;
        }
    }
    Failure::of_pairs(&failed, of)
}
