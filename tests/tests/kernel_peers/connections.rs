//! Programs that connect by `rdma_cm`, over urxe as an unprivileged user and over `rdma_rxe` in a
//! guest: both roles, IPv4 and IPv6.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use urxe_tests::kernel::{HOST_V4, HOST_V6, Job, Lab, Series};
use urxe_tests::programs::is_early;

use crate::case::{Case, Failure};
use crate::players::{Family, Node};

const END_LIMIT: Duration = Duration::from_secs(60);
/// What a server has before its client comes: nothing outside tells when it listens.
pub const HEAD_STARTS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];

/// A pair of programs.
pub struct Pair {
    pub server: &'static str,
    /// The server's address goes behind it.
    pub client: &'static str,
    /// What both ends say in the end; of a server that goes on for ever, only the client.
    pub says: &'static str,
    /// On urxe's side not the program over `urxe run`, but the subcommand of this name.
    pub is_subcommand: bool,
    /// The server goes on until it is stopped.
    pub is_endless: bool,
}

/// The program over `urxe run`, and over the kernel.
pub const PROGRAM: Pair =
    Pair { server: "", client: "", says: "", is_subcommand: false, is_endless: false };

const PAIRS: [Pair; 8] = [
    Pair {
        server: "rping -s -a 0.0.0.0 -v -V -C 6 -S 4000",
        client: "rping -c -v -V -C 6 -S 4000 -a",
        says: "rdma-ping-5:",
        is_subcommand: true,
        ..PROGRAM
    },
    Pair {
        server: "rping -s -a 0.0.0.0 -v -V -C 8 -S 5000",
        client: "rping -c -v -V -C 8 -S 5000 -a",
        says: "rdma-ping-7:",
        ..PROGRAM
    },
    Pair {
        server: "rping -s -a 0.0.0.0 -v -C 3 -q",
        client: "rping -c -v -C 3 -q -a",
        says: "rdma-ping-2:",
        ..PROGRAM
    },
    Pair {
        server: "ucmatose -b 0.0.0.0 -c 5 -C 5 -S 3000",
        client: "ucmatose -c 5 -C 5 -S 3000 -s",
        says: "return status 0",
        ..PROGRAM
    },
    Pair {
        server: "udaddy -b 0.0.0.0 -c 2 -C 5",
        client: "udaddy -c 2 -C 5 -s",
        says: "return status 0",
        ..PROGRAM
    },
    Pair { server: "rdma_server", client: "rdma_client -s", says: "end 0", ..PROGRAM },
    Pair {
        server: "cmtime -b 0.0.0.0",
        client: "cmtime -c 50 -s",
        says: "disconnect",
        is_endless: true,
        ..PROGRAM
    },
    Pair {
        server: "rping -s -P -a 0.0.0.0",
        client: "rping -c -v -V -C 4 -a",
        says: "rdma-ping-3:",
        is_endless: true,
        ..PROGRAM
    },
];

/// Each end verifies what it hears, and the errno of what is refused: what it expects is what both
/// kernels do.
const PRIVATE_DATA: [Pair; 1] = [Pair {
    server: "private_data -s 0.0.0.0",
    client: "private_data -c",
    says: "all as expected",
    ..PROGRAM
}];

/// perftest with -R makes two connections, and its client comes to the second when it likes.
const PERFTEST: [Pair; 2] = [
    Pair {
        server: "ib_send_bw -R -F -n 100",
        client: "ib_send_bw -R -F -n 100",
        says: "#iterations",
        ..PROGRAM
    },
    Pair {
        server: "ib_read_lat -R -F -n 100",
        client: "ib_read_lat -R -F -n 100",
        // The server has no figures: it is read from.
        says: "RDMA_Read Latency Test",
        ..PROGRAM
    },
];

/// rsockets: more than their buffers hold, both ways, looked at; messages that go inline; mapped
/// memory. Not `-T a`, which ends with POLLHUP when the original hears of the end before the last
/// data. Not udpong: the original makes an address handle without a GRH for its own service, which
/// every RoCE device of a kernel refuses (rsocket.c, `ds_add_qp_dest`; seen with 6.1 and 6.12:
/// EINVAL), so that it does not run between kernels either.
const RSOCKETS: [Pair; 4] = [
    Pair {
        server: "rstream -b 0.0.0.0 -T v -S 1000000 -C 10 -I 2",
        client: "rstream -T v -S 1000000 -C 10 -I 2 -s",
        says: "custom    976k",
        ..PROGRAM
    },
    Pair {
        server: "rstream -b 0.0.0.0 -T n -S 50 -C 2000 -I 1",
        client: "rstream -T n -S 50 -C 2000 -I 1 -s",
        says: "custom    50",
        ..PROGRAM
    },
    Pair {
        server: "rstream -b 0.0.0.0 -T b -S 5000 -C 100 -I 2",
        client: "rstream -T b -S 5000 -C 100 -I 2 -s",
        says: "custom    4",
        ..PROGRAM
    },
    Pair {
        server: "riostream -b 0.0.0.0 -T v -S 60000 -C 20 -I 2",
        client: "riostream -T v -S 60000 -C 20 -I 2 -s",
        says: "custom    ",
        ..PROGRAM
    },
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for series in Series::ALL {
        let case = |role: &str, pairs: &'static [Pair], serves: bool| {
            let name = format!("connections::{role}_{}", series.name());
            Case::new(name, move |lab| play_all(lab, series, pairs, serves))
        };
        cases.push(case("serve", &PAIRS, true));
        cases.push(case("clients_of", &PAIRS, false));
        cases.push(case("private_data_served_to", &PRIVATE_DATA, true));
        cases.push(case("private_data_of_clients_of", &PRIVATE_DATA, false));
        cases.push(case("perftest_serves", &PERFTEST, true));
        // An emulated kernel that shares its processor listens for the second connection too late,
        // whatever its head start.
        cases.push(case("perftest_clients_of", &PERFTEST, false).long());
        cases.push(case("rsockets_serve", &RSOCKETS, true));
        // The guest of 6.12 has died once while its rstream served.
        cases.push(case("rsockets_clients_of", &RSOCKETS, false).long());
    }
    cases
}

/// Plays all, and then tells of each that failed.
fn play_all(
    lab: &Lab,
    series: Series,
    pairs: &'static [Pair],
    serves: bool,
) -> Result<(), Failure> {
    let (urxe, kernel) = (Node::Urxe(lab), Node::Kernel(lab.guest(series)));
    let (server, client) = if serves { (urxe, kernel) } else { (kernel, urxe) };
    let mut failed = Vec::new();
    let plays = Family::ALL.into_iter().flat_map(|family| {
        // The other servers bind to all of IPv4, where nobody takes requests of IPv6.
        let fits = move |pair: &&Pair| family == Family::V4 || pair.server.contains("0.0.0.0");
        pairs.iter().filter(fits).map(move |pair| (family, pair))
    });
    let mut of = 0;
    for (family, pair) in plays {
        of += 1;
        if let Err(failure) = play(pair, family, server, client) {
            failed.push(format!("{} {}: {failure}", family.name(), pair.client));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Pairs { failed: failed.len(), of, what: failed.join("\n") })
}

/// Plays one, once somebody listens.
pub fn play(
    pair: &Pair,
    family: Family,
    server: Node<'_>,
    client: Node<'_>,
) -> Result<(), Failure> {
    let mut last = None;
    for head_start in HEAD_STARTS {
        let serving = start(pair.is_subcommand, pair.server, family, server, None)?;
        sleep(head_start);
        let finished =
            start(pair.is_subcommand, pair.client, family, client, Some(server.address(family)))?
                .finish(END_LIMIT)?;
        if is_early(&finished.output) {
            last = Some(Failure::Program(format!(
                "nobody listened: {}\n{}",
                finished.output,
                serving.stop()
            )));
            continue;
        }
        let client = finished.ok()?;
        let server = if pair.is_endless {
            serving.stop();
            None
        } else {
            Some(serving.finish(END_LIMIT)?.ok()?)
        };
        for output in std::iter::once(client).chain(server) {
            if !output.contains(pair.says) {
                let (command, wanted) = (pair.client.to_owned(), pair.says.to_owned());
                return Err(Failure::Unsaid { command, output, wanted });
            }
        }
        return Ok(());
    }
    Err(last.unwrap_or(Failure::Program("nobody listened".to_owned())))
}

/// Starts a program of an end, with the server's address behind its words.
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
        Node::Urxe(lab) => {
            let own = if family == Family::V4 { HOST_V4 } else { HOST_V6 };
            // What was compiled here is in the lab's folder; Debian's programs are in PATH.
            let installed = lab.installed(words.split(' ').next().unwrap_or_default());
            let run = match installed.parent().filter(|_| installed.exists()) {
                _ if is_subcommand => String::new(),
                Some(folder) => format!("run -- {}/", folder.display()),
                None => "run -- ".to_owned(),
            };
            let words = format!("{run}{words} {host}");
            let command = lab.unprivileged(lab.installed("urxe")).env("URXE_LOG", "warn");
            let command = command.env("URXE_DEVICES", format!("rxe0={own}"));
            Ok(command.args(words.split_whitespace()).start()?)
        }
    }
}
