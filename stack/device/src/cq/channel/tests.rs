//! Tests of the order of events, of counts and of slots.

use std::sync::Arc as StdArc;

use super::*;
use crate::cq::test_wake::{AllTaken, CountingWake};

fn counted() -> (CompletionChannel, StdArc<CountingWake>) {
    let count = CountingWake::new();
    (CompletionChannel::new(Box::new(StdArc::clone(&count))), count)
}

fn event(cq: u32) -> CqEvent {
    CqEvent { cq: CqId(cq), context: u64::from(cq) << 32 }
}

fn taken(channel: &CompletionChannel) -> Vec<u32> {
    std::iter::from_fn(|| channel.next_event())
        .map(|taken| {
            assert_eq!(taken, event(taken.cq.0));
            taken.cq.0
        })
        .collect()
}

#[test]
fn queues_take_turns() {
    let (channel, count) = counted();
    let slots = [1, 2, 3].map(|cq| channel.attach(event(cq)));
    for _ in 0..3 {
        channel.notify(slots[1]);
    }
    channel.notify(slots[0]);
    channel.notify(slots[2]);
    channel.notify(slots[0]);
    assert_eq!(channel.waiting_events(), 6);
    assert_eq!(count.count(), 6);
    assert_eq!(taken(&channel), [2, 1, 3, 2, 1, 2]);
    assert_eq!(channel.waiting_events(), 0);
    assert_eq!(count.count(), 0, "events taken without a count take theirs back");
}

#[test]
fn the_list_of_ready_queues_needs_no_more_room_than_queues() {
    let (channel, _) = counted();
    let slots: Vec<_> = (0..10).map(|cq| channel.attach(event(cq))).collect();
    let room = lock(&channel.state).ready.capacity();
    for _ in 0..100 {
        for &slot in &slots {
            channel.notify(slot);
        }
    }
    let state = lock(&channel.state);
    assert_eq!(state.ready.len(), 10);
    assert_eq!(state.ready.capacity(), room);
}

#[test]
fn a_slot_is_reused_and_its_former_queue_has_no_effect() {
    let (channel, count) = counted();
    let old = channel.attach(event(1));
    channel.notify(old);
    channel.notify(old);
    channel.detach(old, Acknowledgements::Await);
    assert_eq!(count.count(), 0);
    assert_eq!((channel.cq_count(), channel.waiting_events()), (0, 0));

    let new = channel.attach(event(2));
    assert_eq!(new.index, old.index);
    channel.notify(old);
    channel.acknowledge(old, 1);
    channel.detach(old, Acknowledgements::Await);
    assert_eq!((channel.cq_count(), channel.waiting_events()), (1, 0));
    channel.notify(new);
    assert_eq!(taken(&channel), [2]);
    channel.acknowledge(new, 1);
    channel.detach(new, Acknowledgements::Await);
    assert_eq!(channel.cq_count(), 0);
}

#[test]
fn detaching_withdraws_only_the_events_of_that_queue() {
    let (channel, count) = counted();
    let slots = [1, 2].map(|cq| channel.attach(event(cq)));
    for _ in 0..2 {
        for slot in slots {
            channel.notify(slot);
        }
    }
    channel.detach(slots[0], Acknowledgements::Ignore);
    assert_eq!(count.count(), 2);
    assert_eq!(taken(&channel), [2, 2]);
}

#[test]
fn acknowledging_too_much_is_acknowledging_all() {
    let (channel, _) = counted();
    let slot = channel.attach(event(1));
    channel.notify(slot);
    channel.notify(slot);
    assert_eq!(taken(&channel).len(), 2);
    channel.acknowledge(slot, 7);
    channel.detach(slot, Acknowledgements::Await);
    assert_eq!(channel.cq_count(), 0);
}

#[test]
fn a_count_whose_event_was_withdrawn_is_void_once() {
    let channel = CompletionChannel::new(Box::new(AllTaken));
    let [leaving, staying] = [1, 2].map(|cq| channel.attach(event(cq)));
    channel.notify(leaving);
    channel.detach(leaving, Acknowledgements::Await);
    channel.notify(staying);
    assert_eq!(
        channel.next_event_for_count(),
        None,
        "the first count stood for the withdrawn event"
    );
    assert_eq!(channel.next_event_for_count(), Some(event(2)));
    channel.notify(staying);
    assert_eq!(channel.next_event(), Some(event(2)), "taken although a reader holds the count");
    assert_eq!(channel.next_event_for_count(), None);
    channel.notify(staying);
    assert_eq!(channel.next_event_for_count(), Some(event(2)));
}
