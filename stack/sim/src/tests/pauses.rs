//! Tests of pauses of nodes and links.

use super::*;

const FROM: Time = Time::from_ns(5 * MICROSECOND);
const UNTIL: Time = Time::from_ns(MILLISECOND);

/// Sends numbered packets from 0 to 1 and from 1 to 0, one each every 2 µs for 2 ms, with this
/// pause.
fn with_pause(scope: impl Fn(&Net) -> PauseScope, packets: PausedPackets) -> Net {
    let mut net = Net::new(1, 2);
    let scope = scope(&net);
    net.network.pause(Pause { scope, packets, from: FROM, until: UNTIL });
    for number in 0..1_000 {
        net.run_until(Time::from_ns(u64::from(number) * 2 * MICROSECOND));
        net.send(0, 1, &numbered(number), 64);
        net.send(1, 0, &numbered(number), 64);
    }
    net.run();
    net
}

fn link_0_to_1(net: &Net) -> PauseScope {
    PauseScope::Link { from: net.node(0), to: net.node(1) }
}

fn node_1(net: &Net) -> PauseScope {
    PauseScope::Node(net.node(1))
}

fn all() -> Vec<u32> {
    (0..1_000).collect()
}

/// The numbers that are neither sent in the pause nor arrive in it. The packets 0 to 499, 2 µs
/// apart, are lost.
fn after_the_pause() -> Vec<u32> {
    (500..1_000).collect()
}

#[test]
fn a_held_link_delivers_all_at_the_end_in_order() {
    let net = with_pause(link_0_to_1, PausedPackets::Hold);
    assert_eq!((net.numbers(1), net.numbers(0)), (all(), all()));
    assert!(net.reads.iter().filter(|read| read.node == 1).all(|read| read.at >= UNTIL));
    // These packets arrive before the end, so they are sent by 988 µs.
    assert_eq!(net.network.counters().held, 495);
}

#[test]
fn a_cut_link_loses_what_is_sent_and_what_is_on_the_way() {
    let net = with_pause(link_0_to_1, PausedPackets::Drop);
    assert_eq!((net.numbers(1), net.numbers(0)), (after_the_pause(), all()));
    assert_eq!(net.network.counters().paused, 500);
}

#[test]
fn a_stopped_node_reads_at_the_end_what_its_socket_held() {
    let net = with_pause(node_1, PausedPackets::Hold);
    assert_eq!((net.numbers(1), net.numbers(0)), (all(), all()));
    assert!(net.reads.iter().filter(|read| read.node == 1).all(|read| read.at >= UNTIL));
    assert_eq!(net.network.counters().held, 0);
}

#[test]
fn an_unplugged_node_neither_sends_nor_receives() {
    let net = with_pause(node_1, PausedPackets::Drop);
    assert_eq!((net.numbers(1), net.numbers(0)), (after_the_pause(), after_the_pause()));
}

#[test]
fn a_stopped_node_says_when_it_resumes() {
    let net = Net::new(1, 2);
    let (node, at) = (net.node(0), |us| Time::from_ns(us * MICROSECOND));
    for (from, until) in [(10, 20), (15, 30), (30, 40), (50, 60)] {
        let (scope, packets) = (PauseScope::Node(node), PausedPackets::Hold);
        net.network.pause(Pause { scope, packets, from: at(from), until: at(until) });
    }
    for (now, until) in
        [(9, None), (10, Some(40)), (39, Some(40)), (40, None), (50, Some(60)), (60, None)]
    {
        net.network.advance(at(now));
        assert_eq!(net.network.stopped_until(node), until.map(at), "at {now} µs");
        assert_eq!(net.network.stopped_until(net.node(1)), None);
    }
}

#[test]
fn a_partition_cuts_both_ways_between_its_sides_alone() {
    let mut net = Net::new(1, 4);
    let [a, b, c, d] = [0, 1, 2, 3].map(|index| net.node(index));
    net.network.partition(&[a, b], &[c, d], PausedPackets::Drop, Time::ZERO, UNTIL);
    for from in 0..4 {
        for to in 0..4 {
            net.send_numbered(from, to, 1);
        }
    }
    net.run();
    let mut pairs: Vec<(IpAddr, usize)> =
        net.reads.iter().map(|read| (read.from, read.node)).collect();
    pairs.sort_unstable();
    let expected = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3)]
        .map(|(from, to)| (address(from), to));
    assert_eq!(pairs, expected);
}

#[test]
fn healing_ends_pauses() {
    let mut net = Net::new(1, 2);
    let (scope, packets) = (node_1(&net), PausedPackets::Hold);
    net.network.pause(Pause { scope, packets, from: Time::ZERO, until: Time::NEVER });
    net.send_numbered(0, 1, 3);
    net.run_until(UNTIL);
    assert!(net.reads.is_empty());
    net.network.heal();
    assert!(net.network.next_event().is_some_and(|next| next <= UNTIL));
    net.run();
    assert_eq!(net.numbers(1), [0, 1, 2]);
}
