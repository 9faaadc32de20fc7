//! Programs that connect by `rdma_cm`, over urxe as an unprivileged user and over `rdma_rxe` in a
//! guest: both roles, IPv4 and IPv6.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use urxe_tests::kernel::{Finished, HOST_V4, HOST_V6, Job, Series, Testbed};
use urxe_tests::programs::is_early;

use crate::case::{Case, Failure, must_contain};
use crate::nodes::{Family, Node, roles, urxe};

const END_LIMIT: Duration = Duration::from_secs(60);
/// Waits before the client starts, because a server does not report when it listens.
pub const START_DELAYS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];

/// A pair of programs.
pub struct Pair {
    pub server: &'static str,
    /// The client's command, to which the server's address is appended.
    pub client: &'static str,
    /// The text that both ends print at the end; only the client, if the server does not end.
    pub prints: &'static str,
    /// Whether urxe's side runs the subcommand of this name instead of the program over `urxe run`.
    pub is_subcommand: bool,
    /// Whether the server runs until it is killed.
    pub is_endless: bool,
}

/// Returns a pair of the program over `urxe run`, and over the kernel.
pub const fn pair(server: &'static str, client: &'static str, prints: &'static str) -> Pair {
    Pair { server, client, prints, is_subcommand: false, is_endless: false }
}

const PAIRS: [Pair; 8] = [
    Pair {
        is_subcommand: true,
        ..pair(
            "rping -s -a 0.0.0.0 -v -V -C 6 -S 4000",
            "rping -c -v -V -C 6 -S 4000 -a",
            "rdma-ping-5:",
        )
    },
    pair(
        "rping -s -a 0.0.0.0 -v -V -C 8 -S 5000",
        "rping -c -v -V -C 8 -S 5000 -a",
        "rdma-ping-7:",
    ),
    pair("rping -s -a 0.0.0.0 -v -C 3 -q", "rping -c -v -C 3 -q -a", "rdma-ping-2:"),
    pair(
        "ucmatose -b 0.0.0.0 -c 5 -C 5 -S 3000",
        "ucmatose -c 5 -C 5 -S 3000 -s",
        "return status 0",
    ),
    pair("udaddy -b 0.0.0.0 -c 2 -C 5", "udaddy -c 2 -C 5 -s", "return status 0"),
    pair("rdma_server", "rdma_client -s", "end 0"),
    Pair { is_endless: true, ..pair("cmtime -b 0.0.0.0", "cmtime -c 50 -s", "disconnect") },
    Pair {
        is_endless: true,
        ..pair("rping -s -P -a 0.0.0.0", "rping -c -v -V -C 4 -a", "rdma-ping-3:")
    },
];

/// Private data in both directions, and the errno of refused calls. Each end expects the results of
/// both kernels.
const PRIVATE_DATA: [Pair; 1] =
    [pair("private_data -s 0.0.0.0", "private_data -c", "all as expected")];

/// perftest with -R, which makes two connections; the time of the second varies.
const PERFTEST: [Pair; 2] = [
    pair("ib_send_bw -R -F -n 100", "ib_send_bw -R -F -n 100", "#iterations"),
    // The server prints no figures, because the client reads from it.
    pair("ib_read_lat -R -F -n 100", "ib_read_lat -R -F -n 100", "RDMA_Read Latency Test"),
];

/// rsockets with more data than their buffers hold, in both directions, with verification; with
/// inline messages; with mapped memory. `-T a` is left out, because it ends with POLLHUP if the
/// original receives the end before the last data. udpong is left out, because the original creates
/// an address handle without a GRH for its own service, which every RoCE device of a kernel refuses
/// with EINVAL (rsocket.c, `ds_add_qp_dest`; 6.1 and 6.12). So it does not run between kernels
/// either.
const RSOCKETS: [Pair; 4] = [
    pair(
        "rstream -b 0.0.0.0 -T v -S 1000000 -C 10 -I 2",
        "rstream -T v -S 1000000 -C 10 -I 2 -s",
        "custom    976k",
    ),
    pair(
        "rstream -b 0.0.0.0 -T n -S 50 -C 2000 -I 1",
        "rstream -T n -S 50 -C 2000 -I 1 -s",
        "custom    50",
    ),
    pair(
        "rstream -b 0.0.0.0 -T b -S 5000 -C 100 -I 2",
        "rstream -T b -S 5000 -C 100 -I 2 -s",
        "custom    4",
    ),
    pair(
        "riostream -b 0.0.0.0 -T v -S 60000 -C 20 -I 2",
        "riostream -T v -S 60000 -C 20 -I 2 -s",
        "custom    ",
    ),
];

/// The sizes of the transfers of `rstream`, `riostream` and `urxe-stream`, which is an `RdmaStream`
/// of the Rust API.
const STREAM_SIZES: &str = "-S 300000 -C 10 -I 2";

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let [first, second] = both;
    let stream_case = |series: Series, program: &'static str, option: &'static str| {
        let name = format!("connections::streams_and_{program}_{}", series.name());
        Case::new(name, move |testbed| streams(testbed, series, program, option))
    };
    let mut cases = vec![
        stream_case(first, "rstream", ""),
        stream_case(first, "riostream", " --mapped"),
        stream_case(second, "riostream", " --mapped").long(),
    ];
    for series in both {
        let case = |role: &str, pairs: &'static [Pair], serves: bool| {
            let name = format!("connections::{role}_{}", series.name());
            Case::new(name, move |testbed| run_all(testbed, series, pairs, serves))
        };
        cases.push(case("serve", &PAIRS, true));
        cases.push(case("clients_of", &PAIRS, false));
        cases.push(case("private_data_served_to", &PRIVATE_DATA, true));
        cases.push(case("private_data_of_clients_of", &PRIVATE_DATA, false));
        cases.push(case("perftest_serves", &PERFTEST, true));
        cases.push(case("perftest_clients_of", &PERFTEST, false).long());
        cases.push(case("rsockets_serve", &RSOCKETS, true));
        // The guest with 6.12 has died once while its rstream served.
        cases.push(case("rsockets_clients_of", &RSOCKETS, false).long());
    }
    cases
}

/// Runs an `RdmaStream` as server and as client of a program of rdma-core. Both ends verify every
/// byte.
fn streams(testbed: &Testbed, series: Series, program: &str, option: &str) -> Result<(), Failure> {
    let guest = testbed.guest(series);
    let kernel = Node::Kernel(guest).address(Family::V4);
    let stream = |options: String| {
        let command = testbed.unprivileged(testbed.installed("urxe-stream"));
        let command = command.env("URXE_DEVICES", format!("rxe0={HOST_V4}"));
        command.words(&format!("{options} {STREAM_SIZES}{option}")).start()
    };
    let every_byte = |job: Job| {
        must_contain("urxe-stream", &job.finish(END_LIMIT)?.ok()?, "every byte is as expected")
    };

    let mut serving = stream(format!("-b {HOST_V4}:7471"))?;
    serving.wait_for("listening", END_LIMIT)?;
    let client = guest.start(&format!("{program} -T v {STREAM_SIZES} -s {HOST_V4}"))?;
    must_contain(program, &client.finish(END_LIMIT)?.ok()?, "custom    292k")?;
    every_byte(serving)?;

    let serving = guest.start(&format!("{program} -b 0.0.0.0 -T v {STREAM_SIZES}"))?;
    every_byte(stream(format!("-s {kernel}:7471"))?)?;
    must_contain(program, &serving.finish(END_LIMIT)?.ok()?, "custom    292k")
}

/// Runs all pairs, and reports each that failed.
fn run_all(
    testbed: &Testbed,
    series: Series,
    pairs: &'static [Pair],
    serves: bool,
) -> Result<(), Failure> {
    let (server, client) = roles(testbed, series, serves);
    let mut failed = Vec::new();
    let runs = Family::ALL.into_iter().flat_map(|family| {
        // The other servers bind to IPv4 only.
        let fits = move |pair: &&Pair| family == Family::V4 || pair.server.contains("0.0.0.0");
        pairs.iter().filter(fits).map(move |pair| (family, pair))
    });
    let mut of = 0;
    for (family, pair) in runs {
        of += 1;
        if let Err(failure) = run_pair(pair, family, server, client) {
            failed.push(format!("{} {}: {failure}", family.name(), pair.client));
        }
    }
    Failure::of_pairs(&failed, of)
}

/// Runs a pair, with longer waits until the server listens in time.
pub fn run_pair(
    pair: &Pair,
    family: Family,
    server: Node<'_>,
    client: Node<'_>,
) -> Result<(), Failure> {
    let mut last = String::new();
    for start_delay in START_DELAYS {
        let serving = start(pair.is_subcommand, pair.server, family, server, None)?;
        sleep(start_delay);
        let host = Some(server.address(family));
        let finished =
            start(pair.is_subcommand, pair.client, family, client, host)?.finish(END_LIMIT)?;
        if is_early(&finished.output) {
            last = format!("no server listened: {}\n{}", finished.output, serving.stop());
            continue;
        }
        let client = finished.ok()?;
        if pair.is_endless {
            serving.stop();
        } else {
            let served = serving.finish(END_LIMIT)?;
            let served = if ends_late(&served) { served.output } else { served.ok()? };
            must_contain(pair.server, &served, pair.prints)?;
        }
        return must_contain(pair.client, &client, pair.prints);
    }
    Err(Failure::Program(last))
}

/// Returns whether a server ended with an error that is the program's own, after all its work. The
/// event thread of rping calls `rdma_get_cm_event` again, and the main thread may have destroyed
/// the channel by then.
fn ends_late(finished: &Finished) -> bool {
    finished.status == 255 && finished.output.contains("rdma_get_cm_event: Bad file descriptor")
}

/// Starts a program of an end, with the server's address at the end of the command.
pub fn start(
    is_subcommand: bool,
    words: &str,
    family: Family,
    node: Node<'_>,
    server: Option<IpAddr>,
) -> Result<Job, Failure> {
    let words = match family {
        Family::V4 => words.to_owned(),
        Family::V6 => words.replace("0.0.0.0", "::"),
    };
    let host = server.map(|address| address.to_string()).unwrap_or_default();
    match node {
        Node::Kernel(guest) => Ok(guest.start(&format!("{words} {host}"))?),
        Node::Urxe(testbed) => {
            let own = if family == Family::V4 { HOST_V4 } else { HOST_V6 };
            // Programs that were compiled here are in the testbed's folder; Debian's programs are
            // in PATH.
            let installed = testbed.installed(words.split(' ').next().unwrap_or_default());
            let run = match installed.parent().filter(|_| installed.exists()) {
                _ if is_subcommand => String::new(),
                Some(folder) => format!("run -- {}/", folder.display()),
                None => "run -- ".to_owned(),
            };
            let mut command = urxe(testbed, own).env("URXE_LOG", "warn");
            if server.is_some() && words.starts_with("ib_") {
                let slow = testbed.installed("slow_connect.so");
                command = command.env("LD_PRELOAD", slow.display().to_string());
            }
            Ok(command.words(&format!("{run}{words} {host}")).start()?)
        }
    }
}
