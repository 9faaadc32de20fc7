//! Processes on one address that are killed and started again while the others exchange verified
//! messages.
//!
//! `URXE_SHARING_KILLS=200 URXE_SHARING_SEED=7 cargo test -p urxe-tests --test sharing` sets the
//! number of killed processes and the seed of their choice. The defaults are a few processes and a
//! printed seed.
//!
//! Tests that need `::1` exclusively, or several users, are ignored except by `cargo xtask
//! namespace`, in a network namespace.

mod many;
mod member;
mod memory;
mod users;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use urxe_stack::port::sharing::sharers;
use urxe_stack::rng::Rng;

use self::member::{Member, TIMEOUT};
use self::users::own_namespace;

/// All members and the pairs between them.
struct Processes {
    address: IpAddr,
    start: fn(IpAddr) -> Member,
    members: Vec<Option<Member>>,
    /// The name of the pair of two members, of which the lower index is first.
    pairs: BTreeMap<(usize, usize), u64>,
    names: u64,
}

impl Processes {
    /// Starts members, and pairs each with each.
    fn new(address: IpAddr, members: usize, start: fn(IpAddr) -> Member) -> Self {
        let mut processes = Self::without_pairs(address, members, start);
        let pairs: Vec<_> = (0..members).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
        processes.pair(&pairs);
        processes
    }

    /// Starts members without pairs.
    fn without_pairs(address: IpAddr, members: usize, start: fn(IpAddr) -> Member) -> Self {
        let members = (0..members).map(|_| Some(start(address))).collect();
        Self { address, start, members, pairs: BTreeMap::new(), names: 1 }
    }

    fn member(&mut self, index: usize) -> &mut Member {
        self.members[index].as_mut().unwrap()
    }

    fn running(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|&index| self.members[index].is_some()).collect()
    }

    /// Starts a member and pairs it with all running ones.
    fn start_again(&mut self, index: usize) {
        self.members[index] = Some((self.start)(self.address));
        let others = self.running().into_iter().filter(|&other| other != index);
        self.pair(&others.map(|other| (other, index)).collect::<Vec<_>>());
    }

    /// Connects members; the second of each pair sends first. All get their commands at once,
    /// because a busy member is slow to read them.
    fn pair(&mut self, pairs: &[(usize, usize)]) {
        let named: Vec<_> = (self.names..).zip(pairs.iter().copied()).collect();
        self.names += pairs.len() as u64;
        let ends = || named.iter().flat_map(|&(name, (a, b))| [(name, a), (name, b)]);
        for (name, end) in ends() {
            self.member(end).send(&format!("qp {name}"));
        }
        let mut endpoints: Vec<String> =
            ends().map(|(_, end)| self.member(end).read_reply("endpoint")).collect();
        for two in endpoints.chunks_exact_mut(2) {
            two.swap(0, 1);
        }
        for ((name, end), peer) in ends().zip(&endpoints) {
            self.member(end).send(&format!("connect {name} {peer}"));
        }
        ends().for_each(|(_, end)| drop(self.member(end).read_reply("ok")));
        for &(name, (_, second)) in &named {
            self.member(second).send(&format!("start {name}"));
        }
        named.iter().for_each(|&(_, (_, second))| drop(self.member(second).read_reply("ok")));
        self.pairs.extend(named.iter().map(|&(name, (a, b))| ((a.min(b), a.max(b)), name)));
    }

    /// Kills a member by SIGKILL at any moment. The others drop its pairs by a later command.
    fn kill(&mut self, index: usize) {
        self.members[index] = None;
    }

    fn drop_pairs_of(&mut self, index: usize) {
        let (gone, rest): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.pairs)
            .into_iter()
            .partition(|((a, b), _)| *a == index || *b == index);
        self.pairs = rest;
        let ends = gone.into_iter().flat_map(|((a, b), name)| [(a, name), (b, name)]);
        let running: Vec<_> = ends.filter(|(end, _)| self.members[*end].is_some()).collect();
        for (end, name) in &running {
            self.member(*end).send(&format!("drop {name}"));
        }
        running.iter().for_each(|(end, _)| drop(self.member(*end).read_reply("ok")));
    }

    /// Waits until every pair has exchanged more messages, each verified by its receiver.
    fn wait_for_progress(&mut self, what: &str) {
        self.wait_for_progress_except(&[], what);
    }

    /// Waits for all pairs without a killed member, before the others have dropped the pairs of the
    /// killed ones.
    fn wait_for_progress_except(&mut self, killed: &[usize], what: &str) {
        let is_living = |(a, b): &(usize, usize)| !killed.contains(a) && !killed.contains(b);
        let message_counts: Vec<u64> =
            self.pairs.iter().filter(|(ends, _)| is_living(ends)).map(|(_, name)| *name).collect();
        assert!(killed.iter().all(|&index| self.members[index].is_none()));
        let messages = |processes: &mut Self| -> BTreeMap<(usize, u64), u64> {
            let running = processes.running();
            running.iter().for_each(|&index| processes.member(index).send("status"));
            let each = running.into_iter().flat_map(|index| {
                let member = processes.member(index).message_counts(&message_counts);
                member.into_iter().map(move |(name, messages)| ((index, name), messages))
            });
            each.collect()
        };
        let (before, start) = (messages(self), Instant::now());
        while messages(self).iter().any(|(end, messages)| *messages < before[end] + 4) {
            assert!(start.elapsed() < TIMEOUT, "{what}: a pair makes no progress");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn slots(&self) -> Vec<u8> {
        let mut slots: Vec<u8> = self.members.iter().flatten().map(|member| member.slot).collect();
        slots.sort_unstable();
        slots
    }

    /// Ends all members, and checks that nothing remains.
    fn end(mut self) {
        self.members.clear();
        assert_eq!(sharers(self.address, 0), []);
        assert_eq!(Member::start(self.address).slot, 0);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Returns an address that no other test uses.
fn address(of_test: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 96 + of_test, high, low.max(1)))
}

#[test]
fn members_that_are_killed_and_come_back_cost_the_others_nothing() {
    kill_and_restart(address(0), 6, 16, Member::start);
}

#[test]
#[ignore = "needs ::1 for itself: cargo xtask namespace"]
fn members_that_are_killed_and_come_back_cost_the_others_nothing_over_ipv6() {
    own_namespace();
    kill_and_restart(Ipv6Addr::LOCALHOST.into(), 3, 16, Member::start);
}

fn kill_and_restart(
    address: IpAddr,
    usual_kills: u64,
    members: usize,
    start: fn(IpAddr) -> Member,
) {
    let seed = number("URXE_SHARING_SEED", u64::from(std::process::id()));
    let kills = number("URXE_SHARING_KILLS", usual_kills);
    println!("URXE_SHARING_SEED={seed} URXE_SHARING_KILLS={kills}");
    let mut rng = Rng::stream(seed, 0);
    let mut processes = Processes::new(address, members, start);
    assert_eq!(processes.slots(), (0..members as u8).collect::<Vec<u8>>());
    processes.wait_for_progress("at first");
    let mut left = kills;
    while left > 0 {
        // Sometimes several at once, including the first one.
        let mut killed = processes.running();
        for at in (1..killed.len()).rev() {
            killed.swap(at, rng.below(at as u64 + 1) as usize);
        }
        killed.truncate((1 + rng.below(3)).min(left) as usize);
        left -= killed.len() as u64;
        for &index in &killed {
            processes.kill(index);
        }
        if rng.below(2) == 0 {
            processes.wait_for_progress_except(&killed, "since others died");
        }
        for &index in &killed {
            processes.drop_pairs_of(index);
        }
        for &index in &killed {
            processes.start_again(index);
        }
    }
    processes.wait_for_progress("after the last arrival");
    let slots = processes.slots();
    assert!(slots.windows(2).all(|two| two[0] != two[1]), "{slots:?}");
    for index in processes.running() {
        let astray = processes.member(index).counter("forwarded");
        assert_eq!(astray, 0, "a packet arrived in the wrong process");
    }
    processes.end();
}

#[test]
fn both_orders_of_two_deaths_leave_the_others_their_slots() {
    for (of_test, order) in [(1, [0, 2]), (2, [2, 0]), (3, [1, 0]), (4, [0, 1])] {
        two_deaths(address(of_test), order);
    }
}

#[test]
#[ignore = "needs ::1 for itself: cargo xtask namespace"]
fn both_orders_of_two_deaths_leave_the_others_their_slots_over_ipv6() {
    own_namespace();
    for order in [[0, 2], [2, 0]] {
        two_deaths(Ipv6Addr::LOCALHOST.into(), order);
    }
}

fn two_deaths(address: IpAddr, order: [usize; 2]) {
    let mut processes = Processes::new(address, 4, Member::start);
    for deaths in 1..=2 {
        processes.kill(order[deaths - 1]);
        processes.wait_for_progress_except(&order[..deaths], "since others died");
    }
    for index in order {
        processes.drop_pairs_of(index);
    }
    processes.wait_for_progress("after two deaths");
    // The lowest free slot is taken first.
    processes.start_again(order[0]);
    assert_eq!(usize::from(processes.member(order[0]).slot), order[0].min(order[1]));
    processes.start_again(order[1]);
    assert_eq!(processes.slots(), [0, 1, 2, 3]);
    processes.wait_for_progress("after two arrivals");
    processes.end();
}

#[test]
fn many_at_once_make_one_group() {
    for round in 0..8 {
        let address = address(8 + round);
        let members: Vec<Member> = (0..8).map(|_| Member::spawn(address)).collect();
        let mut slots: Vec<u8> =
            members.iter().map(|member| member.read_reply("slot").parse().unwrap()).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7], "round {round}");
    }
}

#[test]
fn a_member_that_is_stopped_keeps_its_slot_and_newcomers_come_in_elsewhere() {
    let address = address(5);
    let first = Member::start(address);
    let second = Member::start(address);
    let pid = rustix::process::Pid::from_child(&first.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let third = Member::start(address);
    assert_eq!((first.slot, second.slot, third.slot), (0, 1, 2));
}

/// A domain belongs to one process and one device. No process reaches another process's queues, and
/// the same file on another device gives another domain.
#[test]
fn an_xrc_domain_of_a_file_belongs_to_one_process_on_each_device() {
    const CREATE: u32 = 0o100;
    const EXCLUSIVE: u32 = 0o200;
    let file = tempfile::NamedTempFile::new().unwrap();
    let request = |member: &mut Member, flags: u32| {
        member.request(&format!("xrcd {} {flags}", file.path().display()), "xrcd")
    };
    let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error().to_string();
    let (mut first, mut second) = (Member::start(address(20)), Member::start(address(20)));
    let mut elsewhere = Member::start(address(21));
    assert_eq!(request(&mut first, CREATE | EXCLUSIVE), "open");
    assert_eq!(request(&mut second, 0), unsupported);
    assert_eq!(request(&mut second, CREATE | EXCLUSIVE), unsupported);
    assert_eq!(request(&mut elsewhere, CREATE | EXCLUSIVE), "open");
    // With O_CREAT alone, each process has a domain of its own, and a target in it.
    assert_eq!(request(&mut second, CREATE), "open");
    let target = first.request("target", "target");
    assert_eq!(first.request(&format!("open_target {target}"), "target"), "open");
    assert_eq!(second.request(&format!("open_target {target}"), "target"), unsupported);
    // The domain ends with its process, even a killed one.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let mut third = Member::start(address(20));
    assert_eq!(request(&mut third, CREATE | EXCLUSIVE), "open");
}

/// Eight pairs, each with four connections, while no process starts or ends.
#[test]
fn in_steady_traffic_no_packet_comes_to_the_wrong_process() {
    let mut processes = Processes::without_pairs(address(6), 16, Member::start);
    for pair in 0..8 {
        for _ in 0..4 {
            processes.pair(&[(2 * pair, 2 * pair + 1)]);
        }
    }
    for _ in 0..8 {
        processes.wait_for_progress("in steady traffic");
    }
    for index in processes.running() {
        for counter in ["forwarded", "rcvd_forwarded", "drop_other_process", "drop_orphaned_slot"] {
            assert_eq!(processes.member(index).counter(counter), 0, "{counter} of member {index}");
        }
    }
    processes.end();
}

/// Prints how long two members wait for each other's messages while other processes start and end,
/// on the same address and on another one. Starting processes takes processor time in any case; the
/// difference is the result.
#[test]
#[ignore = "prints times: cargo test -p urxe-tests --test sharing -- --ignored --nocapture joining"]
fn cost_of_joining_and_leaving_for_other_processes() {
    const ROUNDS: usize = 5;
    const OTHERS: usize = 40;
    let mut processes = Processes::new(address(7), 2, Member::start);
    let here = processes.address;
    let plans = [
        ("no process joins", None),
        ("processes join and leave another address", Some(address(18))),
        ("processes join and leave this address", Some(here)),
    ];
    let mut longest = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, at), longest) in plans.iter().zip(&mut longest) {
            processes.member(0).request("gaps", "gaps");
            for other in 0..OTHERS {
                let Some(at) = *at else {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                let mut member = Member::start(at);
                if other % 2 == 0 {
                    // Every second process ends regularly, the others are killed.
                    member.request("end", "ok");
                    member.child.wait().unwrap();
                }
            }
            let gaps = processes.member(0).request("gaps", "gaps");
            longest
                .push(gaps.split(' ').map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>());
        }
    }
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>10}",
        "µs between two messages", "messages", "p50", "p99.9", "longest"
    );
    for ((what, _), rounds) in plans.iter().zip(&longest) {
        let median = |column: usize| {
            let mut values: Vec<u64> = rounds.iter().map(|round| round[column]).collect();
            values.sort_unstable();
            values[ROUNDS / 2]
        };
        println!(
            "{what:32} {:>10} {:>10} {:>10} {:>10}",
            median(0),
            median(1),
            median(2),
            median(3)
        );
        assert!(median(0) > 0);
    }
    processes.end();
}
