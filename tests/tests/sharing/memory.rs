//! Members that exchange their messages through shared memory.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::member::{Member, TIMEOUT};
use super::users::own_namespace;
use super::{Processes, address, kill_and_restart};

impl Processes {
    fn received_in_memory(&mut self, index: usize) -> u64 {
        self.member(index).counter("rcvd_in_memory")
    }

    /// Lets a member exchange messages until it receives some in memory, or until the time is over.
    fn wait_for_memory(&mut self, index: usize, longest: Duration) -> bool {
        let (before, start) = (self.received_in_memory(index), Instant::now());
        while start.elapsed() < longest {
            self.wait_for_progress("in memory, or over sockets");
            if self.received_in_memory(index) > before {
                return true;
            }
        }
        false
    }

    /// Returns the number of mapped rings of a member, and the sum of a field of smaps (proc(5)) of
    /// them, in KiB.
    fn rings(&mut self, index: usize, field: &str) -> (usize, u64) {
        let pid = self.member(index).child.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
        let (mut rings, mut sum, mut is_ring) = (0, 0, false);
        for line in text.lines() {
            match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
                [name, value, "kB"] if is_ring && name.strip_suffix(':') == Some(field) => {
                    sum += value.parse::<u64>().unwrap();
                }
                // The first line of a mapping. A ring has two, the second without its beginning.
                [range, _, offset, ..] if range.contains('-') => {
                    is_ring = line.contains("/memfd:urxe-ring");
                    rings += usize::from(is_ring && offset == "00000000");
                }
                _ => {}
            }
        }
        (rings, sum)
    }
}

#[test]
fn members_with_rings_that_are_killed_and_come_back_cost_the_others_nothing() {
    kill_and_restart(address(22), 5, 8, Member::start_in_memory);
}

#[test]
fn steady_traffic_in_memory_comes_to_the_right_process() {
    let mut processes = Processes::new(address(23), 5, Member::start_in_memory);
    // The first messages of a pair go over sockets.
    for _ in 0..4 {
        processes.wait_for_progress("in memory");
    }
    let before: Vec<u64> = (0..5).map(|index| processes.received_in_memory(index)).collect();
    processes.wait_for_progress("in memory");
    for (index, before) in before.into_iter().enumerate() {
        assert!(processes.received_in_memory(index) >= before + 4, "member {index}: {before}");
        for counter in ["forwarded", "rcvd_forwarded", "drop_other_process", "drop_no_qp"] {
            assert_eq!(processes.member(index).counter(counter), 0, "{counter} of member {index}");
        }
    }
    processes.end();
}

/// The member of the other version is one without the option: it closes the connection.
#[test]
fn a_member_without_rings_exchanges_messages_over_sockets() {
    let mut processes = Processes::without_pairs(address(24), 2, Member::start_in_memory);
    processes.start = Member::start;
    processes.start_again(1);
    processes.pair(&[(0, 1)]);
    for _ in 0..4 {
        processes.wait_for_progress("over sockets");
    }
    assert_eq!([0, 1].map(|index| processes.received_in_memory(index)), [0, 0]);
    processes.end();
}

#[test]
fn a_member_that_was_stopped_reads_its_ring_when_it_goes_on() {
    let mut processes = Processes::new(address(25), 2, Member::start_in_memory);
    for _ in 0..4 {
        processes.wait_for_progress("before");
    }
    let pid = Pid::from_child(&processes.member(1).child);
    kill_process(pid, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    kill_process(pid, Signal::CONT).unwrap();
    let before = processes.received_in_memory(0);
    processes.wait_for_progress("after");
    assert!(processes.received_in_memory(0) > before);
    processes.end();
}

#[test]
fn rings_without_traffic_give_their_pages_back_and_go_on() {
    let mut processes = Processes::new(address(26), 2, Member::start_in_memory);
    assert!(processes.wait_for_memory(0, TIMEOUT));
    assert!(processes.wait_for_memory(1, TIMEOUT));
    let (rings, used) = processes.rings(0, "Rss");
    assert!(rings == 2 && used > 8, "{rings} rings with {used} KiB");
    // The requests that the program drops are the last traffic.
    processes.drop_pairs_of(1);
    let start = Instant::now();
    // The first page of each ring remains.
    while processes.rings(0, "Rss") != (2, 8) {
        assert!(start.elapsed() < TIMEOUT, "{:?}", processes.rings(0, "Rss"));
        std::thread::sleep(Duration::from_millis(50));
    }
    processes.pair(&[(0, 1)]);
    assert!(processes.wait_for_memory(0, TIMEOUT));
    processes.end();
}

/// A process of another process namespace has no number here, so its identity cannot be proven.
#[test]
#[ignore = "needs root, for a process namespace: cargo xtask namespace"]
fn members_of_several_process_namespaces_exchange_messages_over_sockets() {
    own_namespace();
    let mut processes = Processes::without_pairs(address(27), 2, Member::start_in_memory);
    processes.start = |address| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(env!("CARGO_BIN_EXE_urxe-member")).env("URXE_SHM", "on");
        Member::opened(command, address)
    };
    processes.start_again(1);
    processes.pair(&[(0, 1)]);
    // Longer than the pause after the first refusal.
    assert!(!processes.wait_for_memory(0, Duration::from_secs(2)));
    assert_eq!(processes.received_in_memory(1), 0);
}

#[test]
#[ignore = "needs the names of all rings of this user: cargo xtask namespace"]
fn members_beyond_the_limit_of_their_user_exchange_messages_over_sockets() {
    own_namespace();
    let name = |number| format!("urxe/4791/rings/{}/{number}", geteuid().as_raw());
    let taken: Vec<_> = (0..512)
        .map(|number| {
            let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
            let taken = socket_with(family, SocketType::SEQPACKET, flags, None).unwrap();
            let name = SocketAddrUnix::new_abstract_name(name(number).as_bytes()).unwrap();
            bind(&taken, &name).unwrap_or_else(|errno| panic!("{number}: {errno}"));
            taken
        })
        .collect();
    let mut processes = Processes::new(address(28), 2, Member::start_in_memory);
    assert!(!processes.wait_for_memory(0, Duration::from_secs(2)));
    drop(taken);
    assert!(processes.wait_for_memory(0, TIMEOUT), "the limit is no longer reached");
    processes.end();
}
