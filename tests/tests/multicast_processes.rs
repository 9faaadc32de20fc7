//! Several processes of this machine in one multicast group, some of them on one address. Each gets
//! its own copy, and no counter of misdirected packets moves.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use urxe_tests::process::KillOnDrop;

const MESSAGES: u32 = 32;

/// Returns an address and a group for this test alone, because several runs may be active.
fn place(host: u8) -> (Ipv4Addr, IpAddr) {
    let [.., high, low] = std::process::id().to_be_bytes();
    (
        Ipv4Addr::new(127, 128 | high >> 1, low, host << 1 | high & 1),
        IpAddr::from([239, 199, high, low]),
    )
}

/// A child process of the test.
struct Process(KillOnDrop);

impl Process {
    fn start(host: u8, options: &[&str]) -> Self {
        let (address, group) = place(host);
        let mut command = Command::new(env!("CARGO_BIN_EXE_urxe-group"));
        command.args(["--address", &address.to_string(), "-m", &group.to_string()]).args(options);
        command.args(["-n", &MESSAGES.to_string()]);
        Self(KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    fn listener(host: u8, queue_pairs: u32) -> Self {
        let mut process = Self::start(host, &["-l", "-q", &queue_pairs.to_string()]);
        let mut line = String::new();
        let mut output = BufReader::with_capacity(1, process.0.stdout.as_mut().unwrap());
        output.read_line(&mut line).unwrap();
        if line != "joined\n" {
            panic!("{line:?}, {:?}", process.end());
        }
        process
    }

    /// Returns whether the process ended with success, and its two outputs.
    fn end(mut self) -> (bool, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.0.wait().unwrap().success(), out, err)
    }
}

/// Returns a counter from a line `counters: NAME VALUE NAME VALUE...`.
fn counter(text: &str, name: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|word| *word != name);
    words
        .nth(1)
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn every_process_gets_its_own_copy_whatever_address_it_shares() {
    // Two processes with three and one queue pairs on the sender's address, one process on another.
    let listeners = [(1, 3), (1, 1), (2, 1)].map(|(host, qps)| (qps, Process::listener(host, qps)));
    let (sent, out, err) = Process::start(1, &[]).end();
    assert!(sent, "{out}{err}");
    assert_eq!(counter(&err, "rcvd_pkts"), 0, "the sender's process has not joined");
    for (queue_pairs, listener) in listeners {
        let (succeeded, out, err) = listener.end();
        assert!(succeeded, "{out}{err}");
        assert_eq!(out, format!("OK {} from {}\n", MESSAGES * queue_pairs, place(1).0));
        assert_eq!(counter(&err, "rcvd_pkts"), u64::from(MESSAGES));
        for astray in
            ["forwarded", "rcvd_forwarded", "drop_other_process", "drop_no_group", "drop_no_qp"]
        {
            assert_eq!(counter(&err, astray), 0, "{astray}");
        }
    }
}
