//! Programs that connect by `rdma_cm`, over urxe as an unprivileged user and over `rdma_rxe` in a guest: both roles, IPv4 and IPv6.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use urxe_tests::kernel::{HOST_V4, HOST_V6, Job, Lab, Series};

use crate::case::{Case, Failure};
use crate::players::{Family, Node};

const END_LIMIT: Duration = Duration::from_secs(60);
/// What a server has before its client comes: nothing outside tells when it listens.
const HEAD_STARTS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)];

/// A pair of programs.
struct Pair {
    server: &'static str,
    /// The server's address goes behind it.
    client: &'static str,
    /// What both ends say in the end.
    says: &'static str,
}

const PAIRS: [Pair; 5] = [
    Pair {
        server: "rping -s -a 0.0.0.0 -v -V -C 8 -S 5000",
        client: "rping -c -v -V -C 8 -S 5000 -a",
        says: "rdma-ping-7:",
    },
    Pair { server: "rping -s -a 0.0.0.0 -v -C 3 -q", client: "rping -c -v -C 3 -q -a", says: "rdma-ping-2:" },
    Pair {
        server: "ucmatose -c 5 -C 5 -S 3000",
        client: "ucmatose -c 5 -C 5 -S 3000 -s",
        says: "return status 0",
    },
    Pair { server: "udaddy -c 2 -C 5", client: "udaddy -c 2 -C 5 -s", says: "return status 0" },
    Pair { server: "rdma_server", client: "rdma_client -s", says: "end 0" },
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for series in Series::ALL {
        for (role, serves) in [("serve", true), ("clients_of", false)] {
            let name = format!("connections::{role}_{}", series.name());
            cases.push(Case::new(name, move |lab| play_all(lab, series, serves)));
        }
    }
    cases
}

/// Plays all, and then tells of each that failed.
fn play_all(lab: &Lab, series: Series, serves: bool) -> Result<(), Failure> {
    let (urxe, kernel) = (Node::Urxe(lab), Node::Kernel(lab.guest(series)));
    let (server, client) = if serves { (urxe, kernel) } else { (kernel, urxe) };
    let mut failed = Vec::new();
    let plays = Family::ALL.into_iter().flat_map(|family| {
        // The other servers bind to all of IPv4, where the kernel takes no request of IPv6.
        let fits = move |pair: &&Pair| family == Family::V4 || pair.server.contains("0.0.0.0");
        PAIRS.iter().filter(fits).map(move |pair| (family, pair))
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

fn play(pair: &Pair, family: Family, server: Node<'_>, client: Node<'_>) -> Result<(), Failure> {
    let mut last = None;
    for head_start in HEAD_STARTS {
        let serving = start(pair.server, family, server, None)?;
        sleep(head_start);
        let finished = start(pair.client, family, client, Some(server.address(family)))?.finish(END_LIMIT)?;
        if is_early(&finished.output) {
            last =
                Some(Failure::Program(format!("nobody listened: {}\n{}", finished.output, serving.stop())));
            continue;
        }
        let [client, server] = [finished.ok()?, serving.finish(END_LIMIT)?.ok()?];
        for output in [client, server] {
            if !output.contains(pair.says) {
                let (command, wanted) = (pair.client.to_owned(), pair.says.to_owned());
                return Err(Failure::Unsaid { command, output, wanted });
            }
        }
        return Ok(());
    }
    Err(last.unwrap_or(Failure::Program("nobody listened".to_owned())))
}

/// Whether a client says that nobody listens yet.
fn is_early(client: &str) -> bool {
    ["error 8", "error: 8", "Connection refused", "UNREACHABLE, error: 1"]
        .iter()
        .any(|early| client.contains(early))
}

fn start(words: &str, family: Family, node: Node<'_>, server: Option<IpAddr>) -> Result<Job, Failure> {
    let words = match family {
        Family::V4 => words.to_owned(),
        Family::V6 => words.replace("0.0.0.0", "::"),
    };
    let host = server.map(|address| address.to_string()).unwrap_or_default();
    match node {
        Node::Kernel(guest) => Ok(guest.start(&format!("{words} {host}"))?),
        Node::Urxe(lab) => {
            let own = if family == Family::V4 { HOST_V4 } else { HOST_V6 };
            let words = format!("run --link rxe0={own} -- {words} {host}");
            let command = lab.unprivileged(lab.installed("urxe")).env("URXE_LOG", "warn");
            Ok(command.args(words.split_whitespace()).start()?)
        }
    }
}
