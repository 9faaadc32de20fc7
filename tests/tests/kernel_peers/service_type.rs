//! The type of service of a connection (`RDMA_OPTION_ID_TOS`) as `tcpdump` sees it in both
//! directions. It equals that between two kernels, with two exceptions:
//!
//! - The two ECN bits of urxe's packets (RFC 3168) are left out.
//! - A kernel's packets of class 0 do not count. A kernel that answers a REQ before the server
//!   listens, or a DREQ after the end, takes the class from the GRH of the received message
//!   (`ib_init_ah_attr_from_wc`), and over IPv4 that is 0.

use std::collections::BTreeSet;
use std::process::Command;

use urxe_tests::kernel::{Error, Testbed};

use crate::case::{Case, Failure};
use crate::connections::{Pair, pair, run_pair};
use crate::nodes::{Family, Node};

/// Traffic class 104 (0x68), and a timeout of 2 s.
const PAIR: Pair =
    pair("ucmatose -b 0.0.0.0 -c 2 -C 3", "ucmatose -c 2 -C 3 -t 104 -a 19 -s", "return status 0");

/// Whether a packet is from the client, and its traffic class.
type TrafficClasses = BTreeSet<(bool, Option<u8>)>;

/// The ECN bits, which are left out.
const ECN: u8 = 0b11;

pub fn cases() -> Vec<Case> {
    Family::ALL
        .map(|family| {
            Case::new(format!("service_type::{}", family.name()), move |testbed| {
                all(testbed, family)
            })
        })
        .into()
}

fn all(testbed: &Testbed, family: Family) -> Result<(), Failure> {
    let [old, new] = testbed.old_and_new().map(Node::Kernel);
    let kernels = classes(testbed, family, old, new)?;
    if !kernels.contains(&(true, Some(0x68))) {
        return Err(Failure::Program(format!(
            "the client's packets have not the class 0x68: {kernels:?}"
        )));
    }
    for (server, client, which) in [
        (old, Node::Urxe(testbed), "urxe, a client of 6.1"),
        (new, Node::Urxe(testbed), "urxe, a client of 6.12"),
        (Node::Urxe(testbed), old, "urxe, which serves 6.1"),
        (Node::Urxe(testbed), new, "urxe, which serves 6.12"),
    ] {
        let seen = classes(testbed, family, server, client)?;
        if seen != kernels {
            return Err(Failure::Program(format!(
                "{which}: {seen:?}, between kernels {kernels:?}"
            )));
        }
    }
    Ok(())
}

/// Runs the pair, and returns the traffic classes of its packets on the bridge. The last messages
/// of the test before may still be there.
fn classes(
    testbed: &Testbed,
    family: Family,
    server: Node<'_>,
    client: Node<'_>,
) -> Result<TrafficClasses, Failure> {
    let capture = testbed.capture("service_type_classes")?;
    let played = run_pair(&PAIR, family, server, client);
    let file = capture.keep();
    let io = |source| Error::Io { action: format!("read {} by tcpdump", file.display()), source };
    let read = Command::new("tcpdump").args(["-n", "-v", "-r"]).arg(&file).output().map_err(io)?;
    std::fs::remove_file(&file).map_err(io)?;
    played?;
    let text = String::from_utf8_lossy(&read.stdout);
    let is_kernel = |end| matches!(end, Node::Kernel(_));
    let kernels = [is_kernel(server), is_kernel(client)];
    let [client, server] = [client, server].map(|end| format!("{}.", end.address(family)));
    // For IPv4, tcpdump prints the addresses on a line of their own, after a blank.
    Ok(text
        .replace("\n ", " ")
        .lines()
        .filter_map(|packet| {
            let class = packet
                .split_once("(tos ")
                .or_else(|| packet.split_once("(class "))
                .map(|(_, rest)| rest);
            let class = class.and_then(|rest| rest.split([',', ' ']).next()?.strip_prefix("0x"));
            let class = class.and_then(|hex| u8::from_str_radix(hex, 16).ok());
            let (before, after) = packet.split_once(" > ")?;
            let (sender, receiver) = (before.rsplit(' ').next()?, after);
            let is_client = sender.starts_with(&client);
            let is_server = sender.starts_with(&server);
            let is_theirs = is_client && receiver.starts_with(&server)
                || is_server && receiver.starts_with(&client);
            let is_answer = class == Some(0) && kernels[usize::from(is_client)];
            (is_theirs && !is_answer).then_some((is_client, class.map(|class| class & !ECN)))
        })
        .collect())
}
