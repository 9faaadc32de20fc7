//! Debian's programs, unmodified, over urxe as an unprivileged user and over `rdma_rxe` in a guest:
//! the same pair in both roles. `URXE_PAIRS=104` starts at that pair of the longer list,
//! `URXE_PAIRS=104-108` runs those only.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use urxe_tests::kernel::{Finished, HOST_V4, Job, Series, Testbed};
use urxe_tests::programs::{Pair, lists, selected_pairs, wait_listening};

use crate::case::{Case, Failure};
use crate::nodes::{Family, Node, roles};

/// Pairs in which a kernel's program overruns its own completion queue now and then, as it does
/// between two programs of one kernel (1 of 3 runs with 6.12): perftest gives the queue of
/// `ib_send_lat -e` one entry for each message, and `rdma_rxe` of 6.12 adds the entry of the next
/// receive before the program has polled.
const OVERRUNS: [(Series, &str); 1] = [(Series::V6_12, "ib_send_lat -F -c RC -n 16 -s 2048 -e")];
/// The kernel's message about it.
const OVERRUN: &str = "rxe_cq_post: queue full";

/// The time limit of a pair with all sizes up to 8 MiB in both directions, on a machine with two
/// emulators and other work.
const END_LIMIT: Duration = Duration::from_secs(240);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = Vec::new();
    for series in both {
        for (serves, role) in [(true, "serve"), (false, "clients_of")] {
            let name = format!("programs::{role}_{}", series.name());
            cases.push(Case::new(name, move |testbed| {
                let pairs = lists::with_kernels();
                run_some(testbed, series, &pairs, &(1..=pairs.len()), serves)
            }));
            if series == Series::Newest {
                let name = format!("programs::on_demand_{role}_{}", series.name());
                cases.push(Case::new(name, move |testbed| {
                    let pairs = lists::on_demand();
                    run_some(testbed, series, &pairs, &(1..=pairs.len()), serves)
                }));
            }
            let name = format!("programs::all_{role}_{}", series.name());
            let all = Case::new(name, move |testbed| {
                let pairs = lists::all_with_kernels();
                run_some(testbed, series, &pairs, &selected_pairs(pairs.len()), serves)
            });
            cases.push(all.long());
        }
    }
    cases
}

/// Runs the pairs with these numbers, of which the first is 1, and reports each that failed.
fn run_some(
    testbed: &Testbed,
    series: Series,
    pairs: &[Pair],
    numbers: &RangeInclusive<usize>,
    serves: bool,
) -> Result<(), Failure> {
    let (server, client) = roles(testbed, series, serves);
    let mut failed = Vec::new();
    for nr in numbers.clone() {
        let Err(failure) = run_again_after_reboot(testbed, nr, &pairs[nr - 1], server, client)
        else {
            continue;
        };
        if overran(testbed, series, &pairs[nr - 1])? {
            eprintln!("pair {nr}: the kernel's program overran its completion queue: {failure}");
            continue;
        }
        // A run takes many minutes, so each failure is also printed at once.
        eprintln!("pair {nr} of {}: {failure}", pairs.len());
        failed.push(format!("{nr}: {failure}"));
    }
    Failure::of_pairs(&failed, numbers.clone().count())
}

/// Returns whether a failed pair is one of [`OVERRUNS`], and its guest reports the overrun.
fn overran(testbed: &Testbed, series: Series, pair: &Pair) -> Result<bool, Failure> {
    let is_listed = OVERRUNS.iter().any(|(of, words)| *of == series && pair.to_string() == *words);
    Ok(is_listed && testbed.guest(series).dmesg()?.contains(OVERRUN))
}

/// Runs a pair. If a guest died meanwhile, the pair runs once more with a new guest, as whole tests
/// do elsewhere ([`Case`] has the reason); the other pairs of the list need not run again.
fn run_again_after_reboot(
    testbed: &Testbed,
    nr: usize,
    pair: &Pair,
    server: Node<'_>,
    client: Node<'_>,
) -> Result<(), Failure> {
    let Err(failure) = run_pair(testbed, pair, server, client, None) else { return Ok(()) };
    let dead = testbed.reboot_failed()?;
    if dead.is_empty() {
        return Err(failure);
    }
    eprintln!("pair {nr}: {failure}\n{}\nIt is played once more.", dead.join("\n"));
    let Err(failure) = run_pair(testbed, pair, server, client, None) else { return Ok(()) };
    // The next pair needs the guest.
    let dead = testbed.reboot_failed()?;
    Err(Failure::Program(format!("{failure}\n{}", dead.join("\n"))))
}

/// Runs a pair, with these faults of packets that urxe's end receives. Returns the outputs of
/// server and client.
pub fn run_pair(
    testbed: &Testbed,
    pair: &Pair,
    server: Node<'_>,
    client: Node<'_>,
    faults: Option<&str>,
) -> Result<[String; 2], Failure> {
    let is_alive = || !testbed.has_lost_a_guest();
    let port = testbed.port();
    let serving = start(pair, server, port, None, faults)?;
    match server {
        Node::Kernel(guest) => guest.wait_listening(port)?,
        Node::Urxe(_) => wait_listening(port, || false).map_err(Failure::Program)?,
    }
    let client = start(pair, client, port, Some(server.address(Family::V4)), faults)?
        .finish_while(END_LIMIT, is_alive);
    let client = match client.and_then(Finished::ok) {
        Ok(output) => output,
        // The server still waits for its client.
        Err(error) => return Err(Failure::Program(format!("{error}\nserver: {}", serving.stop()))),
    };
    let server = serving.finish_while(END_LIMIT, is_alive)?.ok()?;
    pair.check(&server, &client).map_err(Failure::Program)?;
    Ok([server, client])
}

fn start(
    pair: &Pair,
    node: Node<'_>,
    port: u16,
    server: Option<IpAddr>,
    faults: Option<&str>,
) -> Result<Job, Failure> {
    let host = server.map(|address| address.to_string()).unwrap_or_default();
    let flag = pair.gid_flag();
    match node {
        Node::Kernel(guest) => {
            let gid = guest.gid_index(node.address(Family::V4))?;
            // When a program ends, the kernel drops its outstanding acknowledgements, and the other
            // end would wait for them.
            let preload = "LD_PRELOAD=/usr/lib/lingering.so ";
            Ok(guest.start(&format!("{preload}{pair} -d rxe0 {flag} {gid} -p {port} {host}"))?)
        }
        Node::Urxe(testbed) => {
            // Programs that were compiled here are in the testbed's folder; Debian's programs are
            // in PATH.
            let own = testbed.installed(pair.program);
            let program =
                if own.exists() { own.display().to_string() } else { pair.program.to_owned() };
            let words = format!("{program} {} {flag} 0 -p {port} {host}", pair.options);
            let faults = faults.map(|faults| format!("--fault {faults}")).unwrap_or_default();
            let words = format!("run {faults} --link rxe0={HOST_V4} -- {words}");
            // perftest ends its table without a new line, and the report of the faults would follow
            // in the same line.
            let level = if !faults.is_empty() && pair.is_perftest() { "error" } else { "warn" };
            let command = testbed.unprivileged(testbed.installed("urxe")).env("URXE_LOG", level);
            Ok(command.words(&words).start()?)
        }
    }
}
