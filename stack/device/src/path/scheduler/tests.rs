//! The order of turns, without queue pairs and sockets.

use super::TransmitStatus::{Blocked, Idle, RunFull, WouldEndRun};
use super::*;
use crate::path::admission_queue::MAX_BYPASSES;

const SEND: Credit = Credit::Send;
const UNLIMITED: u64 = u64::MAX;

fn listed(ready: impl IntoIterator<Item = u32>) -> TurnQueues {
    TurnQueues { ready: ready.into_iter().collect(), ..TurnQueues::default() }
}

/// Queue pairs that wait for the window, in order.
fn waiting(indices: impl IntoIterator<Item = u32>) -> TurnQueues {
    let mut queues = TurnQueues::default();
    indices.into_iter().for_each(|index| queues.admission(SEND).push_back(index));
    queues
}

/// Carries out turns until none is left and returns them. `outcome` returns the status of a turn
/// and the bytes that it adds.
fn run(
    scheduler: &mut Scheduler<'_>,
    has_room: bool,
    mut outcome: impl FnMut(&Turn) -> (TransmitStatus, u64),
) -> Vec<Turn> {
    let mut turns = Vec::new();
    while let Some(turn) = scheduler.next(|_| has_room) {
        let (status, bytes) = outcome(&turn);
        scheduler.record(&turn, status, bytes, 0);
        turns.push(turn);
        assert!(turns.len() < 1000, "the round does not end");
    }
    turns
}

fn indices(turns: &[Turn]) -> Vec<u32> {
    turns.iter().map(|turn| turn.index).collect()
}

#[test]
fn the_ready_have_their_turns_in_order_and_only_the_last_may_end_the_run() {
    let mut queues = listed([3, 1, 2]);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let turns = run(&mut scheduler, true, |_| (Idle, 100));
    assert_eq!(indices(&turns), [3, 1, 2]);
    let rules: Vec<_> =
        turns.iter().map(|turn| (turn.rules.may_end_run, turn.rules.more_pending)).collect();
    assert_eq!(rules, [(false, true), (false, true), (true, false)]);
    assert_eq!(scheduler.end(), (UNLIMITED - 300, 0));
    assert!(queues.is_empty());
}

#[test]
fn a_queue_pair_that_would_end_the_run_is_asked_again_after_the_others_and_then_may() {
    let mut queues = listed([1, 2]);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let turns = run(&mut scheduler, true, |turn| match turn.rules.may_end_run {
        false => (WouldEndRun, 0),
        true => (Idle, 100),
    });
    // The second is the last ready queue pair, but not the only one left.
    assert_eq!(indices(&turns), [1, 2, 1, 2]);
    assert_eq!(turns[2].source, TurnSource::SetAside);
    assert!(turns[2].rules.may_end_run && turns[2].rules.more_pending);
    assert!(turns[3].rules.may_end_run && !turns[3].rules.more_pending);
}

#[test]
fn those_set_aside_begin_the_next_run() {
    let mut queues = listed([1, 2, 3, 4]);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let mut outcomes = [WouldEndRun, WouldEndRun, RunFull, WouldEndRun, Idle, Idle, Idle].iter();
    let turns = run(&mut scheduler, true, |_| (*outcomes.next().expect("no further turn"), 0));
    // The queue pair that is set aside once more waits for the ready ones.
    assert_eq!(indices(&turns), [1, 2, 3, 1, 2, 4, 1]);
}

#[test]
fn too_many_set_aside_end_the_run_before_the_others_are_asked() {
    let mut queues = listed(0..40);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let turns = run(&mut scheduler, true, |turn| match turn.rules.may_end_run {
        false => (WouldEndRun, 0),
        true => (Idle, 100),
    });
    let most = MAX_SET_ASIDE as u32;
    assert_eq!(indices(&turns)[..=MAX_SET_ASIDE], (0..most).chain([0]).collect::<Vec<_>>());
    assert_eq!(turns[MAX_SET_ASIDE + 1].index, most, "there is room for another");
    assert_eq!(turns.iter().filter(|turn| turn.rules.may_end_run).count(), 40);
}

#[test]
fn those_that_wait_are_tried_in_order_once_a_round_until_the_first_that_finds_too_little() {
    let mut queues = waiting([1, 2, 3, 4]);
    queues.ready.push_back(9);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let turns = run(&mut scheduler, true, |turn| match turn.index {
        // It sends a part and waits for more credit: it goes to the end.
        1 => (Blocked(SEND), 100),
        3 => (Blocked(SEND), 0),
        _ => (Idle, 100),
    });
    assert_eq!(indices(&turns), [9, 1, 2, 3]);
    scheduler.end();
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    assert_eq!(indices(&run(&mut scheduler, true, |_| (Idle, 1))), [3, 4, 1]);
}

#[test]
fn those_that_wait_are_not_asked_without_room() {
    let mut queues = waiting([1, 2]);
    queues.ready.push_back(9);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let turns = run(&mut scheduler, false, |_| (Idle, 100));
    assert_eq!(indices(&turns), [9]);
    assert!(turns[0].rules.may_end_run, "nothing follows it");
    scheduler.end();
    assert!(queues.has_blocked());
}

#[test]
fn a_ready_queue_pair_yields_to_one_passed_over_often_and_is_tried_after_it() {
    let mut queues = waiting([1]);
    for _ in 0..MAX_BYPASSES {
        queues.ready.push_back(9);
        let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
        let turns = run(&mut scheduler, false, |_| (Idle, 100));
        assert_eq!(turns[0].rules.yields, [false, false]);
        scheduler.end();
    }
    queues.ready.push_back(9);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let turns = run(&mut scheduler, true, |turn| match turn.rules.yields[SEND as usize] {
        true => (Blocked(SEND), 0),
        // The queue pair that waited has nothing to send any more.
        false => (Idle, u64::from(turn.index == 9)),
    });
    assert_eq!(indices(&turns), [9, 1, 9]);
    assert_eq!(turns[0].rules.yields, [true, false], "it waits for the window only");
}

#[test]
fn a_round_that_does_not_end_lets_no_queue_pair_starve() {
    let mut queues = waiting([1]);
    let mut scheduler = Scheduler::begin(&mut queues, UNLIMITED);
    let mut turns = Vec::new();
    // Another thread lists queue pair 9 again and again, and fills a run each time.
    for bypasses in 0..2 * MAX_BYPASSES {
        scheduler.ready_to_refill().unwrap().push_back(9);
        let has_room = bypasses >= MAX_BYPASSES;
        turns = run(&mut scheduler, has_room, |turn| match turn.rules.yields[SEND as usize] {
            true => (Blocked(SEND), 0),
            false => (if turn.index == 9 { RunFull } else { Idle }, 100),
        });
        if turns.len() > 1 {
            assert_eq!(bypasses, MAX_BYPASSES);
            break;
        }
    }
    assert_eq!(indices(&turns), [9, 1, 9]);
    scheduler.end();
    assert!(queues.is_empty());
}

#[test]
fn the_budget_ends_the_round_and_the_next_goes_on() {
    let mut queues = listed([1, 2, 3]);
    let mut scheduler = Scheduler::begin(&mut queues, 150);
    let first = run(&mut scheduler, true, |turn| match turn.index {
        1 => (WouldEndRun, 0),
        _ => (Idle, 200),
    });
    assert_eq!(indices(&first), [1, 2], "a turn is completed");
    assert_eq!(scheduler.end().0, 0);
    assert!(!queues.is_empty());
    assert_eq!((queues.take_set_aside(), queues.take_set_aside()), (Some(1), None));
    let mut scheduler = Scheduler::begin(&mut queues, 150);
    assert_eq!(indices(&run(&mut scheduler, true, |_| (Idle, 100))), [3]);
    assert_eq!(scheduler.end(), (50, 0));
    assert!(queues.is_empty());
}
