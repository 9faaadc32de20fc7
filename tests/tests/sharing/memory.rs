//! Members that exchange their messages through shared memory.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::member::Member;
use super::{Processes, address, kill_and_restart};

impl Processes {
    fn received_in_memory(&mut self, index: usize) -> u64 {
        self.member(index).counter("rcvd_in_memory")
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
