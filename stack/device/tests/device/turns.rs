//! The order of turns when many queue pairs wait for credit of their path.

use urxe_test_support::packet::{ack, nak, write_only};
use urxe_types::port::{Run, SendOutcome, Transmit};
use urxe_wire::{NakCode, Rkey};

use super::bursts::{Sender, number};
use super::*;

const MTU: u32 = 1024;
/// The packets of a burst, which is sent as a whole.
const BURST: usize = 32;

/// Returns the PSN of a packet of queue pair `nr`.
fn psn(sender: &Sender, nr: usize, packet: usize) -> u32 {
    sender.end.device.query_qp(sender.qps[nr]).unwrap().sq_psn.add(packet as u32).value()
}

/// Acknowledges the first `packets` packets of queue pair `nr`.
fn acknowledge(sender: &Sender, nr: usize, packets: usize) {
    sender.receive([(nr, ack(psn(sender, nr, packets - 1)))]);
}

/// Reports to queue pair `nr` that the packet behind its first `packets` is missing.
fn miss(sender: &Sender, nr: usize, packets: usize) {
    sender.receive([(nr, nak(psn(sender, nr, packets), NakCode::PsnSequence))]);
}

/// Returns the queue pairs whose packets leave now, each once for packets in a row, and the number
/// of these packets.
fn turns(sender: &Sender) -> Vec<(u32, usize)> {
    let mut turns: Vec<(u32, usize)> = Vec::new();
    for (nr, _) in sender.runs().concat() {
        match turns.last_mut() {
            Some((last, count)) if *last == nr => *count += 1,
            _ => turns.push((nr, 1)),
        }
    }
    turns
}

/// Returns queue pairs of which the first fills the window, and the second has a burst to send.
fn full() -> Sender {
    let sender = Sender::new(10);
    sender.post(0, SendOp::Send, 3 * BURST as u32 * MTU);
    assert_eq!(turns(&sender), [(0, 3 * BURST)]);
    sender.post(1, SendOp::Send, BURST as u32 * MTU);
    assert_eq!(turns(&sender), []);
    sender
}

/// Returns queue pairs that fill the window but for four bytes. The second waits with a burst.
fn full_to_the_last_bytes() -> Sender {
    let sender = Sender::new(10);
    sender.post(2, SendOp::Send, 18 * MTU);
    assert_eq!(turns(&sender), [(2, 18)]);
    sender.post(3, SendOp::Send, 700);
    assert_eq!(turns(&sender), [(3, 1)]);
    sender.post(0, SendOp::Send, 3 * BURST as u32 * MTU);
    assert_eq!(turns(&sender), [(0, 3 * BURST)]);
    assert_eq!(sender.end.device.bytes_in_flight(), (2 * 15 * (4096 + 64) - 4, 0));
    sender.post(1, SendOp::Send, BURST as u32 * MTU);
    assert_eq!(turns(&sender), []);
    sender
}

#[test]
fn waiting_queue_pairs_get_credit_in_order() {
    let sender = full();
    for nr in 2..10 {
        sender.post(nr, SendOp::Send, BURST as u32 * MTU);
        assert_eq!(turns(&sender), []);
    }
    acknowledge(&sender, 0, BURST);
    assert_eq!(turns(&sender), [(1, BURST)]);
    acknowledge(&sender, 0, 3 * BURST);
    assert_eq!(turns(&sender)[0].0, 2);
}

#[test]
fn later_short_messages_bypass_a_waiting_queue_pair_a_few_times_and_then_follow_it() {
    let sender = full();
    let later = pass_over(&sender);
    acknowledge(&sender, 0, BURST);
    assert_eq!(turns(&sender), [(1, BURST), (later as u32, 1)]);
}

#[test]
fn a_post_without_room_goes_behind_those_that_wait_though_credit_returns_before_the_next_turn() {
    let sender = full_to_the_last_bytes();
    sender.post(3, SendOp::Send, 1);
    acknowledge(&sender, 0, 3 * BURST);
    assert_eq!(turns(&sender), [(1, BURST), (3, 1)]);
}

#[test]
fn a_read_needs_no_room_in_the_window() {
    let sender = full_to_the_last_bytes();
    sender.post(3, SendOp::Read { remote: sender.end.remote(0) }, 8);
    assert_eq!(turns(&sender), [(3, 1)]);
}

#[test]
fn a_post_of_no_request_takes_no_place_among_those_that_wait() {
    let sender = full_to_the_last_bytes();
    let now = sender.end.clock.now();
    sender.end.device.post_send(now, sender.qps[3], &[]).unwrap();
    sender.post(2, SendOp::Send, 1);
    assert_eq!(turns(&sender), []);
    sender.post(3, SendOp::Send, 1);
    assert_eq!(turns(&sender), []);
    acknowledge(&sender, 0, 3 * BURST);
    assert_eq!(turns(&sender), [(1, BURST), (2, 1), (3, 1)]);
}

#[test]
fn a_queue_pair_blocked_at_a_post_answers_at_once_and_sends_in_its_turn() {
    let sender = full();
    let later = pass_over(&sender);
    sender.receive([(later, write_only(qp::FIRST_PSN.value(), 0, Rkey(0), &[]))]);
    assert_eq!(turns(&sender), [(later as u32, 1)], "the acknowledgement");
    sender.post(later, SendOp::Send, 1);
    assert_eq!(turns(&sender), []);
    acknowledge(&sender, 0, 3 * BURST);
    let turns = turns(&sender);
    assert_eq!((turns[0], turns[1]), ((1, BURST), (later as u32, 2)));
}

#[test]
fn a_queue_pair_blocked_at_a_post_that_is_reset_sends_its_later_posts() {
    let sender = full();
    let later = pass_over(&sender);
    for _ in 0..3 {
        let attr = state(QpState::Reset);
        sender.end.modify(sender.qps[later], &attr, QpAttrMask::STATE);
        sender.end.connect_qp(sender.qps[later], number(later), B);
        sender.post(later, SendOp::Send, 1);
    }
    assert_eq!(turns(&sender), []);
    acknowledge(&sender, 0, 3 * BURST);
    let sent: usize =
        turns(&sender).iter().filter(|(nr, _)| *nr == later as u32).map(|(_, count)| count).sum();
    assert_eq!(sent, 1, "requests from before the reset are forgotten");
}

#[test]
fn a_queue_pair_blocked_at_a_post_that_changes_its_path_sends_at_once() {
    let sender = full();
    let later = pass_over(&sender);
    sender.go_to(later, QpState::Reset);
    sender.end.connect_qp(sender.qps[later], number(later), Ipv4Addr::new(10, 0, 0, 3));
    sender.post(later, SendOp::Send, 1);
    assert_eq!(turns(&sender), [(later as u32, 1)]);
}

#[test]
fn a_queue_pair_that_yields_to_one_that_is_gone_gets_its_turn_at_once() {
    let sender = full();
    let later = pass_over(&sender);
    sender.go_to(1, QpState::Reset);
    sender.post(9, SendOp::Send, 1);
    assert_eq!(turns(&sender), [(later as u32, 1), (9, 1)]);
}

/// Lets other queue pairs send short messages until they must wait for the second. Returns the
/// first that had to.
fn pass_over(sender: &Sender) -> usize {
    let mut before = 0;
    let later = loop {
        // The send queue of each has room for sixteen.
        let later = 2 + before / 16;
        sender.post(later, SendOp::Send, 1);
        match turns(sender)[..] {
            [(nr, 1)] if nr as usize == later => before += 1,
            [] => break later,
            ref other => panic!("{other:?}"),
        }
    };
    assert!(before > 10, "there was room for short ones: {before}");
    later
}

#[test]
fn retransmissions_go_before_waiting_queue_pairs() {
    let sender = full();
    miss(&sender, 0, 1);
    let turns = turns(&sender);
    assert_eq!(turns[0].0, 0, "{turns:?}");
    assert!(turns[0].1 >= 2 * BURST, "{turns:?}");
}

#[test]
fn queue_pairs_that_wait_to_read_do_not_delay_writes_nor_the_reverse() {
    let sender = full();
    let read = SendOp::Read { remote: sender.end.remote(0) };
    while !turns(&sender).is_empty() || sender.end.device.bytes_in_flight().1 == 0 {
        sender.post(2, read, 1 << 20);
    }
    sender.post(3, read, 1 << 20);
    let asked = sender.end.device.bytes_in_flight().1;
    assert_eq!(turns(&sender), []);
    assert_eq!(sender.end.device.bytes_in_flight().1, asked, "the budget of reads is used up");
    acknowledge(&sender, 0, 3 * BURST);
    let turns = turns(&sender);
    assert!(turns.contains(&(1, BURST)), "{turns:?}");
    assert!(turns.iter().all(|(nr, _)| *nr < 2), "{turns:?}");
}

#[test]
fn thousands_that_wait_all_get_their_turn_in_their_order() {
    const QPS: usize = 500;
    let sender = Sender::new(QPS);
    for nr in 0..QPS {
        sender.post(nr, SendOp::Send, BURST as u32 * MTU);
    }
    let (mut order, mut sent) = (Vec::new(), vec![0; QPS]);
    for answered in 0..QPS {
        for (nr, packets) in turns(&sender) {
            if sent[nr as usize] == 0 {
                order.push(nr);
            }
            sent[nr as usize] += packets;
        }
        let nr = order[answered] as usize;
        assert_eq!(sent[nr], BURST, "queue pair {nr}, after {answered} acknowledgements");
        acknowledge(&sender, nr, BURST);
    }
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_budget_ends_a_call_between_turns_and_the_next_call_goes_on() {
    const BUDGET: u64 = 10 * MTU as u64;
    let sender = Sender::new(60);
    for nr in 0..60 {
        sender.post(nr, SendOp::Write { remote: sender.end.remote(0) }, 2 * MTU);
    }
    let (mut order, mut calls) = (Vec::new(), 0);
    loop {
        let now = sender.end.clock.now();
        let is_left_over = sender.end.device.transmit_within(now, &sender.wire, BUDGET);
        let runs = sender.wire.take();
        let bytes: usize = runs.iter().map(|run| run.bytes.len()).sum();
        for run in &runs {
            order.extend(run.packets().map(|packet| packet.dest_qp().value() - 0x1000));
        }
        calls += 1;
        assert_eq!(is_left_over, sender.end.device.has_pending());
        if !is_left_over {
            break;
        }
        // A packet is longer than its payload, and the last turn is completed.
        assert!((BUDGET..BUDGET + 2 * 1200).contains(&(bytes as u64)), "{bytes}");
    }
    assert!((10..=13).contains(&calls), "{calls}");
    let mut packets = vec![0; 60];
    order.iter().for_each(|nr| packets[*nr as usize] += 1);
    assert_eq!(packets, [2; 60]);
}

/// A port that posts another message during each send, like a thread that never stops.
struct PostingPort<'s>(&'s Sender);

impl Transmit for PostingPort<'_> {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.0.post(0, SendOp::Send, 1);
        self.0.wire.transmit(run)
    }
}

#[test]
fn a_call_ends_though_its_path_is_listed_again_and_again() {
    const BUDGET: u64 = 1 << 10;
    let sender = Sender::new(1);
    sender.post(0, SendOp::Send, 1);
    for _ in 0..3 {
        let (now, port) = (sender.end.clock.now(), PostingPort(&sender));
        assert!(sender.end.device.transmit_within(now, &port, BUDGET));
        // A short packet counts as 256 bytes.
        assert!((1..=BUDGET / 256).contains(&(sender.wire.take().len() as u64)));
    }
}
