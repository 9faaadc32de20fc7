//! Connections that end by failures, and refused calls: the events of programs over urxe when a
//! kernel's program is killed or its host is silent, and the errors of invalid calls, compared with
//! those over the kernel.

use std::thread::sleep;
use std::time::{Duration, Instant};

use urxe_tests::kernel::{Guest, HOST_V4, Impairment, Series, Testbed};

use crate::case::{Case, Failure, GuestBody, must_contain};
use crate::connections::start;
use crate::nodes::{Family, Node, urxe};

const LIMIT: Duration = Duration::from_secs(60);
/// A silent host: no RoCE packet enters or leaves.
pub const SILENCE: Impairment =
    Impairment { loss: 100.0, duplicate: 0.0, reorder: 0.0, delay_ms: 0 };
/// Longer than all repetitions of a REQ: 16 times, 4.3 s apart (cma.c, `CMA_CM_RESPONSE_TIMEOUT`
/// and `CMA_MAX_CM_RETRIES`).
const UNREACHABLE: Duration = Duration::from_secs(120);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = Vec::new();
    for series in both {
        let case = |what: &str, body: GuestBody| {
            Case::with_guest(format!("ends::{what}_{}", series.name()), series, body)
        };
        let killed_client = case("a_killed_client_of", killed_client);
        let killed_server = case("a_killed_server_of", killed_server);
        // On a busy machine, perftest's server in a guest listens too late for its second
        // connection.
        let silent = case("a_host_that_falls_silent", silent_host).long();
        let unreachable = case("a_host_that_is_silent", unreachable_host).long();
        let refusals = case("refusals_are_those_of", refusals);
        cases.extend([killed_client, killed_server, silent, unreachable, refusals]);
    }
    cases
}

/// Asserts that rping reports the disconnection, or the kernel's response to an earlier message.
/// The kernel removes regions before queue pairs. So a message in between finds no buffer (NAK
/// "remote operational error", completion status 11), and a READ or WRITE finds no region (10).
fn must_report_the_end(words: &str, output: &str, event: &str) -> Result<(), Failure> {
    let is_refused =
        ["10", "11"].iter().any(|status| output.contains(&format!("failed status {status}\n")));
    if is_refused { Ok(()) } else { must_contain(words, output, event) }
}

/// The kernel disconnects on behalf of a killed process, and the server over urxe gets the event.
fn killed_client(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let mut serving =
        start(false, "rping -s -a 0.0.0.0 -v", Family::V4, Node::Urxe(testbed), None)?;
    sleep(Duration::from_secs(1));
    let words = "rping -c -v -C 1000000 -a";
    let _client = start(false, words, Family::V4, Node::Kernel(guest), Some(HOST_V4))?;
    serving.wait_for("rdma-ping-20:", LIMIT)?;
    guest.run("kill -KILL $(pidof rping)")?.ok()?;
    let output = serving.finish(Duration::from_secs(20))?.output;
    must_report_the_end("rping -s", &output, "server DISCONNECT EVENT")
}

/// The same with exchanged roles.
fn killed_server(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let _serving = start(false, "rping -s -a 0.0.0.0", Family::V4, Node::Kernel(guest), None)?;
    sleep(Duration::from_secs(2));
    let words = "rping -c -v -C 1000000 -a";
    let mut client = start(false, words, Family::V4, Node::Urxe(testbed), Some(guest.v4()))?;
    client.wait_for("rdma-ping-20:", LIMIT)?;
    guest.run("kill -KILL $(pidof rping)")?.ok()?;
    must_report_the_end(
        words,
        &client.finish(Duration::from_secs(20))?.output,
        "client DISCONNECT EVENT",
    )
}

/// A sender to a silent host exhausts its retries: seven, each after twice the packet lifetime
/// (IBTA 12.7.34).
fn silent_host(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let words = "ib_write_bw -R -F -D 100";
    let _serving = start(false, words, Family::V4, Node::Kernel(guest), None)?;
    sleep(Duration::from_secs(3));
    let client = start(false, words, Family::V4, Node::Urxe(testbed), Some(guest.v4()))?;
    sleep(Duration::from_secs(5));
    let silence = guest.impair(SILENCE)?;
    let output = client.finish(LIMIT)?.output;
    guest.run("kill -KILL $(pidof ib_write_bw); true")?.ok()?;
    silence.remove()?;
    must_contain(words, &output, "status 12")
}

/// A REQ without a reply ends like the kernel's, after the same time.
fn unreachable_host(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let silence = guest.impair(SILENCE)?;
    let began = Instant::now();
    let words = "rping -c -v -C 1 -a";
    let output = start(false, words, Family::V4, Node::Urxe(testbed), Some(guest.v4()))?
        .finish(UNREACHABLE)?
        .output;
    silence.remove()?;
    let took = began.elapsed();
    println!("{}: unreachable after {took:.1?}", guest.name());
    must_contain(words, &output, "RDMA_CM_EVENT_UNREACHABLE, error -110")
}

/// The program of refusals prints the same over urxe and over the kernel.
fn refusals(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let over_kernel = guest.start(&format!("cm_refusals {}", guest.v4()))?.finish(LIMIT)?.ok()?;
    let program = testbed.installed("cm_refusals");
    let command = urxe(testbed, HOST_V4).args(["run", "--"]).arg(program).arg(HOST_V4.to_string());
    let over_urxe = command.start()?.finish(LIMIT)?.ok()?;
    let (kernels, urxes) = (over_kernel.lines(), over_urxe.lines());
    let differ: Vec<String> = kernels
        .zip(urxes)
        .filter(|(kernel, urxe)| kernel != urxe && !kernel.ends_with(": crashes"))
        .map(|(kernel, urxe)| format!("kernel: {kernel}\nurxe:   {urxe}"))
        .collect();
    if differ.is_empty() && over_kernel.lines().count() == over_urxe.lines().count() {
        return Ok(());
    }
    Err(Failure::Program(format!("{}\nall of the kernel's:\n{over_kernel}", differ.join("\n"))))
}
