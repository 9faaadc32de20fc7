//! Debian's programs, unmodified, over urxe as an unprivileged user and over `rdma_rxe` in a guest: the same pair, both roles.

use std::net::IpAddr;
use std::time::Duration;

use urxe_tests::kernel::{HOST_V4, Job, Lab, Series};
use urxe_tests::programs::{Pair, lists, wait_listening};

use crate::case::{Case, Failure};
use crate::players::{Family, Node};

const END_LIMIT: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for series in Series::ALL {
        let case = |role: &str, pairs: fn() -> Vec<Pair>, serves: bool| {
            let name = format!("programs::{role}_{}", series.name());
            Case::new(name, move |lab| play_all(lab, series, &pairs(), serves))
        };
        cases.push(case("serve", lists::with_kernels, true));
        cases.push(case("clients_of", lists::with_kernels, false));
        cases.push(case("all_serve", lists::all_with_kernels, true).long());
        cases.push(case("all_clients_of", lists::all_with_kernels, false).long());
    }
    cases
}

/// Plays all, and then tells of each that failed.
fn play_all(lab: &Lab, series: Series, pairs: &[Pair], serves: bool) -> Result<(), Failure> {
    let (urxe, kernel) = (Node::Urxe(lab), Node::Kernel(lab.guest(series)));
    let (server, client) = if serves { (urxe, kernel) } else { (kernel, urxe) };
    let failed: Vec<String> = pairs
        .iter()
        .filter_map(|pair| play(lab, pair, server, client).err())
        .map(|failure| failure.to_string())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Pairs { failed: failed.len(), of: pairs.len(), what: failed.join("\n") })
}

fn play(lab: &Lab, pair: &Pair, server: Node<'_>, client: Node<'_>) -> Result<(), Failure> {
    let port = lab.port();
    let serving = start(pair, server, port, None)?;
    match server {
        Node::Kernel(guest) => guest.wait_listening(port)?,
        Node::Urxe(_) => wait_listening(port, || false).map_err(Failure::Program)?,
    }
    let client = start(pair, client, port, Some(server.address(Family::V4)))?.finish(END_LIMIT)?.ok();
    // A client that failed leaves its server waiting: dropping stops it.
    let client = client?;
    let server = serving.finish(END_LIMIT)?.ok()?;
    pair.judge(&server, &client).map_err(Failure::Program)
}

fn start(pair: &Pair, node: Node<'_>, port: u16, server: Option<IpAddr>) -> Result<Job, Failure> {
    let host = server.map(|address| address.to_string()).unwrap_or_default();
    let flag = pair.gid_flag();
    match node {
        Node::Kernel(guest) => {
            let gid = guest.gid_index(node.address(Family::V4))?;
            // What a program still has to acknowledge when it ends, the kernel forgets: the other end would wait in vain.
            let preload = "LD_PRELOAD=/usr/lib/lingering.so ";
            Ok(guest.start(&format!("{preload}{pair} -d rxe0 {flag} {gid} -p {port} {host}"))?)
        }
        Node::Urxe(lab) => {
            // What was compiled here is in the lab's folder; Debian's programs are in PATH.
            let own = lab.installed(pair.program);
            let program = if own.exists() { own.display().to_string() } else { pair.program.to_owned() };
            let words = format!("{program} {} {flag} 0 -p {port} {host}", pair.options);
            let words = format!("run --link rxe0={HOST_V4} -- {words}");
            let command = lab.unprivileged(lab.installed("urxe")).env("URXE_LOG", "warn");
            Ok(command.args(words.split_whitespace()).start()?)
        }
    }
}
