//! As many processes as an address can have, and a pair between each two of them.
//!
//! `cargo xtask sharing` runs these tests, which take minutes on two processors.

use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use super::member::Member;
use super::{Processes, address};

/// The number of process slots of an address.
const MEMBERS: usize = 64;
/// Rounds in which each pair exchanges messages.
const ROUNDS: usize = 5;

#[test]
#[ignore = "64 processes: cargo xtask sharing"]
fn sixty_four_members_exchange_messages_all_to_all_over_sockets() {
    all_to_all(address(27), Member::start);
}

#[test]
#[ignore = "64 processes: cargo xtask sharing"]
fn sixty_four_members_exchange_messages_all_to_all_in_memory() {
    all_to_all(address(28), Member::start_in_memory);
}

/// Prints the time and the memory of the processes.
fn all_to_all(address: IpAddr, start: fn(IpAddr) -> Member) {
    let began = Instant::now();
    let mut processes = Processes::new(address, MEMBERS, start);
    println!("{} pairs after {:.1?}", processes.pairs.len(), began.elapsed());
    for _ in 0..ROUNDS {
        processes.wait_for_progress("all to all");
    }
    let took = began.elapsed();
    // All get the command at once, because a busy member is slow to read it.
    (0..MEMBERS).for_each(|index| processes.member(index).send("status"));
    let names: Vec<u64> = processes.pairs.values().copied().collect();
    let counts = (0..MEMBERS).flat_map(|index| processes.member(index).message_counts(&names));
    let messages: u64 = counts.map(|(_, count)| count).sum();
    (0..MEMBERS).for_each(|index| processes.member(index).send("counters"));
    let counters: Vec<String> =
        (0..MEMBERS).map(|index| processes.member(index).read_reply("counters")).collect();
    let sum = |name: &str| -> u64 {
        let words = counters.iter().flat_map(|counters| counters.split(' '));
        words
            .filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
            .sum()
    };
    let (in_memory, received) = (sum("rcvd_in_memory"), sum("rcvd_pkts"));
    let mut memory: Vec<u64> =
        (0..MEMBERS).map(|index| proportional_kib(processes.member(index).child.id())).collect();
    memory.sort_unstable();
    println!(
        "{messages} messages after {took:.1?}; {in_memory} of {received} packets in memory; \
         memory of a process {} to {} KiB, median {} KiB",
        memory[0],
        memory[MEMBERS - 1],
        memory[MEMBERS / 2]
    );
    processes.end();
}

/// Returns the memory of a process, in which each shared page counts as its part (`Pss` of
/// proc(5)).
fn proportional_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
