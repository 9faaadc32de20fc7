//! Programs on a congested path: the system's packet filter marks packets as a router does, and
//! tshark reads the congestion notifications.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use urxe_tests::process::KillOnDrop;

use crate::install::{install, ok, text_of};
use crate::pair::{Outputs, run};

const LINKS: [&str; 2] = ["--link rxe0=127.81.0.1", "--link rxe0=127.81.0.2"];
/// The names of the counters in drivers of NICs.
const COUNTERS: [&str; 4] =
    ["np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored"];
/// Marks one of ten ECN-capable packets. GSO marks all segments of a marked packet.
const RULES: &str = "table inet urxe-congestion {
  chain out {
    type filter hook output priority mangle;
    ip daddr 127.81.0.0/24 udp dport 4791 ip ecn ect0 numgen random mod 10 < 1 counter ip ecn set ce
  }
}";

/// The packet filter's rules, which are removed when this value is dropped.
struct Marks;

impl Marks {
    fn set() -> Self {
        ok(Command::new("nft").arg(RULES));
        Self
    }

    /// Returns the number of marked packets.
    fn count(&self) -> u64 {
        let rules = ok(Command::new("nft").args(["list", "table", "inet", "urxe-congestion"]));
        let count =
            rules.split_once("counter packets ").and_then(|(_, rest)| rest.split(' ').next());
        count.unwrap_or_else(|| panic!("{rules}")).parse().unwrap()
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "inet", "urxe-congestion"]).status();
    }
}

/// Starts tcpdump, which records all congestion notifications.
fn watch(file: &Path) -> KillOnDrop {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-Z", "root", "-i", "lo", "--immediate-mode", "-U", "-w"]).arg(file);
    tcpdump.arg("udp port 4791 and udp[8] = 0x81").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = KillOnDrop(tcpdump.spawn().unwrap());
    let mut text = String::new();
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap());
    while !text.contains("listening on") {
        assert!(lines.read_line(&mut text).unwrap() > 0, "tcpdump: {text}");
    }
    child
}

/// Runs `ib_write_bw` between the two addresses, over sockets, which the packet filter sees. Both
/// ends print the counters.
fn write() -> Outputs {
    let counters = COUNTERS.map(|name| format!("hw_counters/{name}")).join(",");
    run(LINKS, &format!("env URXE_SHM=off ib_write_bw -x 0 -F -s 65536 -n 500 -W {counters}"))
        .unwrap()
}

fn counters(output: &str) -> [u64; 4] {
    COUNTERS.map(|name| {
        let value = output
            .lines()
            .find_map(|line| line.trim().strip_prefix(&format!("hw_counters/{name}=")));
        value.unwrap_or_else(|| panic!("no {name}: {output}")).parse().unwrap()
    })
}

#[test]
fn the_receiver_reports_marked_packets_and_the_sender_slows_down() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tried: rules of the packet filter take root");
        return;
    }
    let unmarked = write();
    for output in [&unmarked.server, &unmarked.client] {
        assert_eq!(counters(output), [0; 4], "nothing is marked");
    }
    let file = install().path("notifications.pcap");
    let (watch, marks) = (watch(&file), Marks::set());
    let both = write();
    assert!(marks.count() > 0, "the sender's packets do not announce ECN");
    drop((watch, marks));

    let [marked, notified, _, _] = counters(&both.server);
    let [_, _, obeyed, ignored] = counters(&both.client);
    assert!(
        marked > 0 && notified > 0 && notified <= marked,
        "{notified} notifications for {marked} marks"
    );
    assert!(
        obeyed > 0 && obeyed <= notified && ignored == 0,
        "{obeyed} of {notified} obeyed, {ignored} ignored"
    );

    let fields = ["ip.src", "ip.dst", "infiniband.bth.opcode", "infiniband.bth.psn", "udp.payload"];
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields"]).args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.arg("-r").arg(&file).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let notifications: Vec<&str> = text.lines().collect();
    assert!(
        !notifications.is_empty() && notifications.len() as u64 <= notified,
        "{}",
        text_of(&output)
    );
    for line in notifications {
        let values: Vec<&str> = line.split('\t').collect();
        let [from, to, opcode, psn, payload] = values[..] else { panic!("{line}") };
        assert_eq!((from, to, opcode, psn), ("127.81.0.1", "127.81.0.2", "129", "0"), "{line}");
        // BTH with only BECN set, sixteen reserved bytes, ICRC.
        assert!(
            payload.len() == 64 && &payload[8..10] == "40" && payload[24..56] == "0".repeat(32),
            "{line}"
        );
    }
}
