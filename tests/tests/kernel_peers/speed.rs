//! The speed of making and ending connections over urxe and over `rdma_rxe`: the same `cmtime` with
//! the same number of connections, both ends in the same guest, alternately.
//!
//! A third figure is the cost of five bare datagrams, each with a system call at either end. An
//! emulated processor spends most of its time in such system calls and switches.
//!
//! The guest's kernel uses port 4791, so urxe has a network namespace with a loopback interface.

use std::time::Duration;

use urxe_tests::kernel::{Guest, Series, Testbed};
use urxe_tests::programs::{connected_per_second, whole_per_second};

use crate::case::{Case, Failure};
use crate::nodes::copy_to_guest;

/// Rounds of each of the two. The medians are compared.
const ROUNDS: usize = 3;
/// Connections of a round. Emulated kernels take longer for each connection if there are more: more
/// than twice as long with 5,000 as with 100.
const CONNECTIONS: usize = 1_000;
const DATAGRAM_EXCHANGES: usize = 1_000;
/// The minimum ratio of urxe's speed. urxe takes 2.4 times fewer instructions than either kernel
/// (counted by the emulator's `-icount`), and five bare datagrams ten times fewer. By the clock of
/// a busy machine, the ratio was 1.7.
const WANTED: f64 = 1.3;
const LIMIT: Duration = Duration::from_secs(180);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let case = |series: Series| {
        let name = format!("speed::connections_in_the_guest_{}", series.name());
        Case::with_guest(name, series, compare).long()
    };
    both.map(case).into()
}

fn compare(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    install_library(testbed, guest)?;
    let over_kernel =
        format!("cmtime & sleep 2; cmtime -s {} -c {CONNECTIONS}; kill $!", guest.v4());
    let over_urxe = format!(
        "unshare -n sh -c '/usr/bin/ip link set lo up; export LD_LIBRARY_PATH=/opt/urxe; \
         cmtime & sleep 2; cmtime -s 127.0.0.1 -c {CONNECTIONS}; kill $!'"
    );
    let (mut urxe, mut kernel, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        urxe.push(round(guest, &over_urxe, CONNECTIONS)?);
        kernel.push(round(guest, &over_kernel, CONNECTIONS)?);
        bare.push(exchanges(guest)?);
    }
    let bare = median(bare.into_iter());
    let mut missed = String::new();
    let whats =
        ["connected and disconnected", "from creating to destroying identifiers and queue pairs"];
    for (place, what) in whats.into_iter().enumerate() {
        let [urxe, kernel] =
            [&urxe, &kernel].map(|rounds| median(rounds.iter().map(|round| round[place])));
        let ratio = urxe / kernel;
        let line = format!(
            "{ratio:>6.1} times: {urxe:.0} connections/s over urxe, \
             {kernel:.1} over {} in the same guest, {what}; \
             five bare datagrams: {bare:.0}/s, {:.1} times the kernel's",
            guest.name(),
            bare / kernel
        );
        println!("{line}");
        if ratio < WANTED {
            missed += &format!("{line}\n");
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Program(format!("less than {WANTED}:\n{missed}")))
    }
}

/// Returns how often per second two processes of the guest exchange five datagrams.
fn exchanges(guest: &Guest) -> Result<f64, Failure> {
    let command = format!("five_datagrams 127.0.0.1 {DATAGRAM_EXCHANGES}");
    let output = guest.start(&command)?.finish(LIMIT)?.ok()?;
    let figure = output.split_whitespace().next().and_then(|figure| figure.parse().ok());
    figure.ok_or_else(|| Failure::missing_output(command, output, "a figure"))
}

/// Returns the connections per second, for connecting and disconnecting alone, and for all steps.
fn round(guest: &Guest, command: &str, connections: usize) -> Result<[f64; 2], Failure> {
    let output = guest.start(command)?.finish(LIMIT)?.output;
    let figures =
        connected_per_second(&output, connections).zip(whole_per_second(&output, connections));
    match figures {
        Some((connected, whole)) if !output.contains("event:") => Ok([connected, whole]),
        _ => Err(Failure::missing_output(command, output, "a whole table")),
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Copies `liburxe.so` into the guest, under the names of the libraries that it replaces.
fn install_library(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    copy_to_guest(guest, &testbed.installed("liburxe.so"), "/opt/urxe")?;
    let links =
        "cd /opt/urxe && ln -sf liburxe.so libibverbs.so.1 && ln -sf liburxe.so librdmacm.so.1";
    guest.run(links)?.ok()?;
    Ok(())
}
