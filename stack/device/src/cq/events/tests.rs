//! Tests of the numbers and texts of libibverbs, and of the life of an event.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::cq::NoWake;
use crate::cq::test_wake::{AllTaken, CountingWake};

fn qp(number: u32) -> Qpn {
    Qpn::new(number).unwrap()
}

#[test]
fn types_have_the_numbers_and_texts_of_libibverbs() {
    for (number, event_type) in AsyncEventType::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(event_type.number()), number);
    }
    assert_eq!(AsyncEventType::CqErr.to_string(), "CQ error");
    assert_eq!(AsyncEventType::CommEst.number(), 4);
    assert_eq!(AsyncEventType::CommEst.to_string(), "communication established");
    assert_eq!(AsyncEventType::SqDrained.to_string(), "send queue drained");
    assert_eq!(AsyncEventType::QpLastWqeReached.number(), 16);
    assert_eq!(AsyncEventType::QpLastWqeReached.to_string(), "last WQE reached");
    assert_eq!(AsyncEventType::WqFatal.number(), 19);
}

#[test]
fn events_name_their_object() {
    let cases = [
        (AsyncEvent::Cq(CqEventType::CqErr, CqId(4)), 0, "CQ error on CQ 4"),
        (AsyncEvent::Qp(QpEventType::SqDrained, qp(0x12)), 5, "send queue drained on QP 0x000012"),
        (
            AsyncEvent::Srq(SrqEventType::SrqLimitReached, SrqId(2)),
            15,
            "SRQ limit reached on SRQ 2",
        ),
        (AsyncEvent::Port(PortEventType::GidChange, 1), 18, "GID table change on port 1"),
        (AsyncEvent::DeviceFatal, 8, "local catastrophic error"),
    ];
    for (event, number, text) in cases {
        assert_eq!(event.event_type().number(), number);
        assert_eq!(event.to_string(), text);
    }
    assert_eq!(cases[1].0.object(), Some(EventObject::Qp(qp(0x12))));
    assert_eq!(cases[3].0.object(), None);
    assert_eq!(cases[4].0.object(), None);
}

#[test]
fn events_come_in_order_and_equal_ones_once() {
    let count = CountingWake::new();
    let events = AsyncEvents::new(Box::new(Arc::clone(&count)));
    let first = AsyncEvent::Qp(QpEventType::CommEst, qp(5));
    let second = AsyncEvent::Qp(QpEventType::CommEst, qp(6));
    for event in [first, second, first] {
        events.push(event);
    }
    assert_eq!(count.count(), 2);
    assert_eq!(events.next_event(), Some(first));
    events.push(first);
    assert_eq!(events.waiting_events(), 2, "the earlier one is taken, so this is news");
    assert_eq!(events.next_event(), Some(second));
    assert_eq!(events.next_event(), Some(first));
    assert_eq!(events.next_event(), None);
    assert_eq!(events.lost(), 0);
}

#[test]
fn the_queue_is_bounded() {
    let events = AsyncEvents::with_capacity(Box::new(NoWake), 4);
    for number in 0..6 {
        events.push(AsyncEvent::Qp(QpEventType::CommEst, qp(number)));
    }
    assert_eq!((events.waiting_events(), events.lost()), (4, 2));
    assert_eq!(events.next_event(), Some(AsyncEvent::Qp(QpEventType::CommEst, qp(0))));
}

#[test]
fn a_port_that_changed_again_and_again_ends_as_it_is() {
    let [down, up] =
        [PortEventType::PortErr, PortEventType::PortActive].map(|event| AsyncEvent::Port(event, 1));
    let (other, gids) = (
        AsyncEvent::Port(PortEventType::PortErr, 2),
        AsyncEvent::Port(PortEventType::GidChange, 1),
    );
    let events = AsyncEvents::with_capacity(Box::new(NoWake), 6);
    for event in [down, down, other, gids, up, gids, down, other, up, down] {
        events.push(event);
    }
    let left: Vec<_> = std::iter::from_fn(|| events.next_event()).collect();
    assert_eq!(left, [other, gids, up, down, up, down], "the oldest gave its place to the newest");
    assert_eq!(events.lost(), 0);
}

#[test]
fn retiring_withdraws_and_awaits_only_the_own_events() {
    let count = CountingWake::new();
    let events = Arc::new(AsyncEvents::new(Box::new(Arc::clone(&count))));
    let (mine, other) = (qp(5), qp(6));
    events.push(AsyncEvent::Qp(QpEventType::CommEst, mine));
    events.push(AsyncEvent::Qp(QpEventType::CommEst, other));
    events.push(AsyncEvent::Qp(QpEventType::QpFatal, mine));
    let taken = events.next_event().unwrap();
    let others = events.next_event().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let retiring = std::thread::spawn({
        let events = Arc::clone(&events);
        move || {
            events.retire(EventObject::Qp(mine));
            sender.send(()).unwrap();
        }
    });
    assert!(
        receiver.recv_timeout(Duration::from_millis(50)).is_err(),
        "one event is not acknowledged"
    );
    assert_eq!((events.waiting_events(), count.count()), (0, 0));
    events.ack(&others);
    assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "that was another object's");
    events.ack(&taken);
    receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    retiring.join().unwrap();
    events.ack(&taken);
    events.retire(EventObject::Qp(mine));
}

#[test]
fn each_event_taken_is_acknowledged_by_itself() {
    let events = AsyncEvents::new(Box::new(NoWake));
    let event = AsyncEvent::Qp(QpEventType::CommEst, qp(5));
    for _ in 0..2 {
        events.push(event);
        assert_eq!(events.next_event(), Some(event));
    }
    events.ack(&event);
    assert!(!lock(&events.state).unacknowledged.is_empty());
    events.ack(&event);
    assert!(lock(&events.state).unacknowledged.is_empty());
}

#[test]
fn a_count_yields_an_event_unless_that_was_withdrawn() {
    let events = AsyncEvents::new(Box::new(AllTaken));
    let (leaving, staying) = (qp(5), qp(6));
    events.push(AsyncEvent::Qp(QpEventType::CommEst, leaving));
    events.push(AsyncEvent::Qp(QpEventType::CommEst, staying));
    events.retire(EventObject::Qp(leaving));
    assert_eq!(events.next_event_for_count(), None);
    let event = events.next_event_for_count().unwrap();
    assert_eq!(event, AsyncEvent::Qp(QpEventType::CommEst, staying));
    events.ack(&event);
    events.retire(EventObject::Qp(staying));
}

#[test]
fn retiring_without_wait_returns_at_once() {
    let events = AsyncEvents::new(Box::new(NoWake));
    events.push(AsyncEvent::Srq(SrqEventType::SrqErr, SrqId(1)));
    let taken = events.next_event().unwrap();
    events.push(AsyncEvent::Srq(SrqEventType::SrqLimitReached, SrqId(1)));
    events.retire_without_wait(EventObject::Srq(SrqId(1)));
    assert_eq!(events.waiting_events(), 0);
    events.ack(&taken);
    events.retire(EventObject::Srq(SrqId(1)));
}
