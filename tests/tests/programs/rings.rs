//! Programs that exchange their packets through shared memory.

use std::process::Command;

use crate::install::{EXPECTED, compile, install, text_of};
use crate::pair::{exclusive, run};

/// Options of server and client, each with an address of its own.
const LINKS: [&str; 2] = ["--link rxe0=127.82.0.1", "--link rxe0=127.82.0.2"];
const COUNTER: &str = "rcvd_in_memory";

/// Runs a program of perftest as both ends. Returns the packets that each end received in memory.
fn in_memory(links: [&str; 2], words: &str) -> [u64; 2] {
    let words = format!("{words} -x 0 -F -W hw_counters/{COUNTER}");
    let both = run(links, &words).unwrap();
    [both.server, both.client].map(|output| {
        let value = output
            .lines()
            .find_map(|line| line.trim().strip_prefix("hw_counters/")?.strip_prefix(COUNTER));
        let value = value.and_then(|value| value.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no counter: {output}")).parse().unwrap()
    })
}

#[test]
fn the_packets_of_all_services_take_shared_memory() {
    for words in [
        // Packets take sockets until a background thread has opened a ring. On a busy machine, this
        // thread may wait for a processor while thousands of messages pass.
        "ib_send_bw -c RC -s 8192 -n 20000 --use-srq -r 64",
        "ib_read_bw -c RC -s 8192 -n 20000",
        "ib_write_bw -c UC -s 8192 -n 50000",
        "ib_send_bw -c UD -s 1024 -n 100000",
        "ib_send_bw -c XRC -s 8192 -n 20000",
    ] {
        let [server, client] = in_memory(LINKS, words);
        // The target of a READ, and the sender of datagrams, receive few packets or none.
        assert!(server + client > 1000, "{words}: {server} {client}");
    }
}

#[test]
fn packets_take_sockets_if_the_user_says_so() {
    let off = "env URXE_SHM=off ib_send_bw -c RC -s 8192 -n 20000";
    assert_eq!(in_memory(LINKS, off), [0, 0]);
}

#[test]
fn a_forked_child_sends_nothing_and_its_parent_goes_on() {
    let _exclusive = exclusive();
    let program = compile("ring_fork");
    let words = format!("--link rxe0=127.82.0.3 -- timeout 60 {}", program.display());
    let mut command: Command = install().run(&words);
    let output = command.env("URXE_LOG", "debug").output().unwrap();
    let text = text_of(&output);
    assert!(output.status.success() && text.contains(EXPECTED), "{text}");
    assert!(text.contains("opened a ring"), "the messages took sockets: {text}");
}
