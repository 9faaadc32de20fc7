//! Tests of order, arming, overrun, resizing and destruction.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use urxe_wire::Qpn;

use super::*;
use crate::cq::test_wake::CountingWake;
use crate::cq::{AsyncEvent, CqEventType, NoWake, WcOpcode, WcStatus};

fn config(capacity: u32) -> CqConfig {
    CqConfig {
        id: CqId(3),
        capacity,
        max_capacity: 32_767,
        channel: Some(Arc::new(CompletionChannel::new(Box::new(NoWake)))),
        events: Some(Arc::new(AsyncEvents::new(Box::new(NoWake)))),
        moderation_timers: Arc::default(),
        context: 0xc0,
    }
}

fn cq(capacity: u32) -> Cq {
    Cq::new(config(capacity)).unwrap()
}

fn done(wr_id: u64) -> Completion {
    Completion::new(wr_id, Qpn::QP1, WcOpcode::Send, WcStatus::Success)
}

fn failed(wr_id: u64) -> Completion {
    Completion::new(wr_id, Qpn::QP1, WcOpcode::Send, WcStatus::WrFlushErr)
}

fn polled(cq: &Cq, room: usize) -> Vec<u64> {
    let mut out = vec![Completion::default(); room];
    let count = cq.poll(&mut out).unwrap();
    out[..count].iter().map(|completion| completion.wr_id).collect()
}

fn events(cq: &Cq) -> usize {
    std::iter::from_fn(|| cq.channel().unwrap().next_event())
        .inspect(|event| {
            assert_eq!(*event, CqEvent { cq: CqId(3), context: 0xc0 });
            cq.ack_events(1);
        })
        .count()
}

#[test]
fn completions_come_out_in_order_across_the_end_of_the_ring() {
    let cq = cq(4);
    assert_eq!((cq.id(), cq.context(), cq.capacity()), (CqId(3), 0xc0, 4));
    let mut next = 0;
    for round in 0..20 {
        assert!(cq.is_empty());
        for n in 0..=(round % 4) {
            cq.push(done(next + n), false).unwrap();
        }
        let expected: Vec<_> = (next..=next + round % 4).collect();
        assert_eq!(cq.len(), expected.len());
        let mut got = polled(&cq, 3);
        got.extend(polled(&cq, 3));
        assert_eq!(got, expected);
        next += round % 4 + 1;
    }
    assert_eq!(polled(&cq, 0), []);
}

#[test]
fn a_polled_completion_is_the_pushed_one() {
    let cq = cq(1);
    let pushed = done(5).with_imm(9).with_byte_len(77);
    cq.push(pushed, true).unwrap();
    let mut out = [Completion::default()];
    assert_eq!(cq.poll(&mut out), Ok(1));
    assert_eq!(out, [pushed]);
}

#[test]
fn sizes_out_of_range_are_refused() {
    for requested in [0, 32_768, u32::MAX] {
        let error = Cq::new(config(requested)).unwrap_err();
        assert_eq!(error, CqError::Capacity { requested, max: 32_767 });
        assert_eq!(error.errno(), libc::EINVAL);
    }
    let error = Cq::new(CqConfig { max_capacity: u32::MAX, ..config(u32::MAX) }).unwrap_err();
    assert!(matches!(error, CqError::Capacity { .. } | CqError::NoMemory { .. }), "{error}");
}

#[test]
fn an_unarmed_queue_is_silent() {
    let cq = cq(8);
    cq.push(done(1), true).unwrap();
    cq.push(failed(2), false).unwrap();
    assert_eq!(events(&cq), 0);
}

#[test]
fn arming_for_next_makes_one_event() {
    let cq = cq(8);
    assert!(!cq.arm(ArmKind::Next));
    assert!(!cq.arm(ArmKind::Next), "arming twice is arming once");
    for wr_id in 0..3 {
        cq.push(done(wr_id), false).unwrap();
    }
    assert_eq!(events(&cq), 1);
    assert!(cq.arm(ArmKind::Next), "three completions were missed");
    assert_eq!(events(&cq), 0, "what was missed makes no event");
    cq.push(done(3), false).unwrap();
    assert_eq!(events(&cq), 1);
}

#[test]
fn completions_left_in_the_queue_cause_one_event() {
    let cq = cq(8);
    for wr_id in 0..3 {
        cq.push(done(wr_id), false).unwrap();
    }
    cq.notify_unpolled();
    assert_eq!(events(&cq), 0, "no event was requested");
    assert_eq!(cq.arm_and_count(ArmKind::Next), 3);
    cq.notify_unpolled();
    cq.notify_unpolled();
    assert_eq!(events(&cq), 1);
    cq.arm(ArmKind::Solicited);
    cq.notify_unpolled();
    assert_eq!(events(&cq), 0, "what is there was not solicited");
    cq.poll(&mut [Completion::default(); 3]).unwrap();
    assert_eq!(cq.arm_and_count(ArmKind::Next), 0);
    cq.notify_unpolled();
    assert_eq!(events(&cq), 0, "nothing is left");
    cq.push(done(3), false).unwrap();
    assert_eq!(events(&cq), 1, "it is still armed");
}

#[test]
fn a_completion_after_an_empty_poll_causes_an_event_when_the_queue_is_armed() {
    let cq = cq(8);
    cq.note_found_empty();
    cq.push(done(0), false).unwrap();
    assert!(!cq.notify_missed(), "no event was requested");
    cq.arm(ArmKind::Next);
    assert!(cq.notify_missed());
    assert_eq!(events(&cq), 1);
    // The program polls after it armed the queue, so it needs no event for what came meanwhile.
    cq.push(done(1), false).unwrap();
    cq.arm(ArmKind::Next);
    assert!(!cq.notify_missed());
    cq.push(done(2), false).unwrap();
    assert_eq!((events(&cq), polled(&cq, 8)), (1, vec![0, 1, 2]));
    // Nothing came after the empty poll.
    cq.note_found_empty();
    cq.arm(ArmKind::Next);
    assert!(!cq.notify_missed());
    assert_eq!(events(&cq), 0);
}

#[test]
fn arming_for_solicited_waits_for_solicited_or_error() {
    let cq = cq(16);
    assert!(!cq.arm(ArmKind::Solicited));
    cq.push(done(0), false).unwrap();
    assert_eq!(events(&cq), 0);
    cq.push(done(1), true).unwrap();
    assert_eq!(events(&cq), 1);
    assert!(cq.arm(ArmKind::Solicited));
    cq.push(done(2), false).unwrap();
    cq.push(failed(3), false).unwrap();
    cq.push(failed(4), false).unwrap();
    assert_eq!(events(&cq), 1);
}

#[test]
fn next_overrides_solicited_and_not_the_other_way_round() {
    for kinds in [[ArmKind::Solicited, ArmKind::Next], [ArmKind::Next, ArmKind::Solicited]] {
        let cq = cq(8);
        for kind in kinds {
            assert!(!cq.arm(kind));
        }
        cq.push(done(0), false).unwrap();
        assert_eq!(events(&cq), 1);
        cq.push(failed(1), true).unwrap();
        assert_eq!(events(&cq), 0);
    }
}

#[test]
fn events_of_several_arms_wait_side_by_side() {
    let cq = cq(8);
    for wr_id in 0..3 {
        cq.arm(ArmKind::Next);
        cq.push(done(wr_id), false).unwrap();
    }
    assert_eq!(cq.channel().unwrap().waiting_events(), 3);
    assert_eq!(events(&cq), 3);
}

#[test]
fn a_sink_sends_its_event_after_the_lock() {
    let cq = cq(8);
    assert!(!cq.arm(ArmKind::Next));
    let mut writer = cq.lock();
    assert_eq!(writer.room(), 8);
    writer.push(done(0), false).unwrap();
    writer.push(done(1), false).unwrap();
    assert_eq!(writer.room(), 6);
    assert_eq!(cq.channel().unwrap().waiting_events(), 0);
    drop(writer);
    assert_eq!(events(&cq), 1);
    assert_eq!(polled(&cq, 8), [0, 1]);
}

/// IBTA 11.6.3.
#[test]
fn an_overrun_causes_one_event_and_is_permanent() {
    let cq = cq(2);
    assert!(!cq.arm(ArmKind::Solicited));
    cq.push(done(0), false).unwrap();
    cq.push(done(1), false).unwrap();
    let overrun = CqError::Overrun { capacity: 2 };
    assert_eq!(cq.push(done(2), false), Err(overrun));
    assert_eq!(cq.push(done(3), false), Err(overrun));
    assert!(cq.is_overrun());
    assert_eq!(cq.lock().room(), 0);
    assert_eq!(events(&cq), 1, "whoever sleeps is woken");

    let asynchronous = cq.events.clone().unwrap();
    let event = asynchronous.next_event().unwrap();
    assert_eq!(event, AsyncEvent::Cq(CqEventType::CqErr, CqId(3)));
    asynchronous.ack(&event);
    assert_eq!(asynchronous.next_event(), None);

    assert_eq!(polled(&cq, 1), [0], "what is inside is not lost");
    assert_eq!(cq.push(done(4), false), Err(overrun), "room does not mend it");
    assert_eq!(polled(&cq, 8), [1]);
    let mut out = [Completion::default()];
    assert_eq!(cq.poll(&mut out), Err(overrun));
    assert!(cq.arm(ArmKind::Next));
    assert_eq!(overrun.errno(), libc::EOVERFLOW);
}

#[test]
fn resizing_keeps_what_is_inside() {
    let cq = cq(4);
    for wr_id in 0..4 {
        cq.push(done(wr_id), false).unwrap();
    }
    assert_eq!(polled(&cq, 2), [0, 1]);
    cq.push(done(4), false).unwrap();
    assert_eq!(cq.resize(2), Err(CqError::TooSmall { requested: 2, held: 3 }));
    assert_eq!(cq.resize(0), Err(CqError::Capacity { requested: 0, max: 32_767 }));
    assert_eq!(cq.resize(32_768), Err(CqError::Capacity { requested: 32_768, max: 32_767 }));
    assert_eq!(cq.capacity(), 4);
    assert_eq!(cq.resize(3), Ok(3));
    assert_eq!(cq.capacity(), 3);
    assert_eq!(cq.lock().room(), 0);
    assert_eq!(cq.resize(100), Ok(100));
    assert_eq!(cq.lock().room(), 97);
    assert_eq!(polled(&cq, 8), [2, 3, 4]);
}

#[test]
fn a_queue_in_use_is_not_destroyed() {
    let cq = Arc::new(cq(4));
    let first = CqRef::new(Arc::clone(&cq)).unwrap();
    let second = CqRef::new(Arc::clone(&cq)).unwrap();
    assert_eq!(cq.destroy(), Err(CqError::Busy { users: 2 }));
    assert_eq!(CqError::Busy { users: 2 }.errno(), libc::EBUSY);
    drop(first);
    assert_eq!(cq.users(), 1);
    second.push(done(1), false).unwrap();
    drop(second);
    let channel = Arc::clone(cq.channel().unwrap());
    assert_eq!(channel.cq_count(), 1);
    assert_eq!(cq.destroy(), Ok(()));
    assert_eq!(channel.cq_count(), 0);
    assert_eq!(cq.destroy(), Err(CqError::Destroyed));
    assert!(matches!(CqRef::new(Arc::clone(&cq)), Err(CqError::Destroyed)));
    assert_eq!(cq.users(), 0);
}

#[test]
fn destruction_withdraws_waiting_events_and_awaits_taken_ones() {
    let count = CountingWake::new();
    let channel = Arc::new(CompletionChannel::new(Box::new(Arc::clone(&count))));
    let cq =
        Arc::new(Cq::new(CqConfig { channel: Some(Arc::clone(&channel)), ..config(8) }).unwrap());
    for wr_id in 0..3 {
        cq.arm(ArmKind::Next);
        cq.push(done(wr_id), false).unwrap();
    }
    assert_eq!(count.count(), 3);
    assert!(channel.next_event_for_count().is_some());
    assert!(count.try_take());
    let (sender, receiver) = std::sync::mpsc::channel();
    let destroyer = std::thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            let result = cq.destroy();
            sender.send(()).unwrap();
            result
        }
    });
    assert!(
        receiver.recv_timeout(Duration::from_millis(50)).is_err(),
        "one event is not acknowledged"
    );
    assert_eq!(count.count(), 0, "the two other events were withdrawn");
    cq.ack_events(1);
    receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(destroyer.join().unwrap(), Ok(()));
}

#[test]
fn a_dropped_queue_leaves_its_channel() {
    let cq = cq(4);
    let channel = Arc::clone(cq.channel().unwrap());
    cq.arm(ArmKind::Next);
    cq.push(done(0), false).unwrap();
    assert!(channel.next_event().is_some());
    cq.arm(ArmKind::Next);
    cq.push(done(1), false).unwrap();
    drop(cq);
    assert_eq!((channel.cq_count(), channel.waiting_events()), (0, 0));
    assert_eq!(channel.next_event(), None);
}

#[derive(Clone, Debug)]
enum Step {
    Push { failed: bool, solicited: bool },
    Poll(usize),
    Arm(ArmKind),
    Resize(u32),
    Remind,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), any::<bool>())
            .prop_map(|(failed, solicited)| Step::Push { failed, solicited }),
        2 => (0..6_usize).prop_map(Step::Poll),
        2 => prop_oneof![Just(ArmKind::Next), Just(ArmKind::Solicited)].prop_map(Step::Arm),
        1 => (1..12_u32).prop_map(Step::Resize),
        1 => Just(Step::Remind),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// The queue behaves like a list with an "armed" flag.
    #[test]
    fn the_queue_follows_its_model(capacity in 1..8_u32, steps in steps()) {
        let cq = cq(capacity);
        let mut capacity = capacity as usize;
        let (mut inside, mut armed, mut expected_events, mut overrun) =
            (VecDeque::new(), None, 0, false);
        for (wr_id, step) in steps.into_iter().enumerate() {
            let wr_id = wr_id as u64;
            match step {
                Step::Push { failed: bad, solicited } => {
                    let result = cq.push(if bad { failed(wr_id) } else { done(wr_id) }, solicited);
                    let fits = !overrun && inside.len() < capacity;
                    prop_assert_eq!(result.is_ok(), fits);
                    let due = match armed {
                        None => false,
                        Some(ArmKind::Next) => true,
                        Some(ArmKind::Solicited) => bad || solicited,
                    };
                    if fits {
                        inside.push_back(wr_id);
                    }
                    let newly = !fits && !overrun && armed.is_some();
                    if (fits && due) || newly {
                        armed = None;
                        expected_events += 1;
                    }
                    overrun |= !fits;
                }
                Step::Poll(room) => {
                    let mut out = vec![Completion::default(); room];
                    match cq.poll(&mut out) {
                        Ok(count) => {
                            prop_assert_eq!(count, room.min(inside.len()));
                            for completion in &out[..count] {
                                prop_assert_eq!(Some(completion.wr_id), inside.pop_front());
                            }
                        }
                        Err(error) => {
                            prop_assert!(overrun && inside.is_empty() && room > 0, "{}", error);
                        }
                    }
                }
                Step::Arm(kind) => {
                    prop_assert_eq!(cq.arm(kind), !inside.is_empty() || overrun);
                    if armed != Some(ArmKind::Next) {
                        armed = Some(kind);
                    }
                }
                Step::Remind => {
                    cq.notify_unpolled();
                    if armed == Some(ArmKind::Next) && !inside.is_empty() {
                        armed = None;
                        expected_events += 1;
                    }
                }
                Step::Resize(size) => {
                    let fits = size as usize >= inside.len();
                    prop_assert_eq!(cq.resize(size).is_ok(), fits);
                    if fits {
                        capacity = size as usize;
                    }
                }
            }
            prop_assert_eq!(cq.len(), inside.len());
            prop_assert_eq!(cq.is_overrun(), overrun);
        }
        prop_assert_eq!(events(&cq), expected_events);
    }
}

fn in_hand(cq: &Cq) -> Option<u64> {
    cq.start_poll().unwrap().map(|poller| poller.completion().wr_id)
}

#[test]
fn a_poller_goes_through_the_queue_one_by_one() {
    let cq = cq(4);
    assert!(cq.start_poll().unwrap().is_none(), "ENOENT");
    (1..=3).for_each(|wr_id| cq.push(done(wr_id), false).unwrap());
    let mut poller = cq.start_poll().unwrap().expect("three are there");
    assert_eq!(poller.completion().wr_id, 1);
    assert_eq!(poller.advance(), Ok(true));
    assert_eq!((poller.completion().wr_id, cq.len()), (2, 1));
    // Completions can be pushed meanwhile, and plain polling works.
    cq.push(done(4), false).unwrap();
    assert_eq!(polled(&cq, 1), [3]);
    assert_eq!(poller.advance(), Ok(true));
    assert_eq!(poller.completion().wr_id, 4);
    assert_eq!(poller.advance(), Ok(false));
    assert_eq!(poller.completion().wr_id, 4, "the last one stays");
    drop(poller);
    assert!(cq.start_poll().unwrap().is_none());
    // Ending early leaves the other completions in the queue.
    (5..=6).for_each(|wr_id| cq.push(done(wr_id), false).unwrap());
    assert_eq!((in_hand(&cq), in_hand(&cq), in_hand(&cq)), (Some(5), Some(6), None));
}

#[test]
fn one_thread_polls_one_by_one_at_a_time() {
    let cq = Arc::new(cq(4));
    (1..=2).for_each(|wr_id| cq.push(done(wr_id), false).unwrap());
    let poller = cq.start_poll().unwrap().expect("two are there");
    assert_eq!(cq.start_poll().unwrap_err(), CqError::Polling);
    assert_eq!(CqError::Polling.errno(), libc::EBUSY);
    let other = std::thread::spawn({
        let cq = Arc::clone(&cq);
        move || in_hand(&cq)
    });
    // The other thread gets no completion before this one ends.
    std::thread::sleep(Duration::from_millis(20));
    assert!(!other.is_finished() && cq.len() == 1);
    drop(poller);
    assert_eq!(other.join().unwrap(), Some(2));
}

#[test]
fn an_unguarded_poll_lasts_until_its_thread_ends_it() {
    let cq = Arc::new(cq(4));
    assert_eq!(
        cq.start_unguarded_poll().unwrap().map(|taken| taken.wr_id),
        None,
        "ENOENT begins no turn"
    );
    (1..=3).for_each(|wr_id| cq.push(done(wr_id), false).unwrap());
    assert_eq!(cq.start_unguarded_poll().unwrap().map(|taken| taken.wr_id), Some(1));
    assert_eq!(cq.start_unguarded_poll().unwrap_err(), CqError::Polling);
    let other = std::thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            // Has no effect: this thread does not poll one by one.
            cq.end_poll();
            in_hand(&cq)
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    assert!(!other.is_finished());
    assert_eq!(polled(&cq, 1), [2]);
    cq.end_poll();
    assert_eq!(other.join().unwrap(), Some(3));
}

#[test]
fn a_poller_fails_with_the_overrun_once_the_queue_is_empty() {
    let cq = cq(1);
    cq.push(done(1), false).unwrap();
    assert!(cq.push(done(2), false).is_err());
    let mut poller = cq.start_poll().unwrap().expect("one is there");
    assert_eq!(poller.advance(), Err(CqError::Overrun { capacity: 1 }));
    drop(poller);
    assert_eq!(cq.start_poll().unwrap_err(), CqError::Overrun { capacity: 1 });
}

#[test]
fn a_unit_of_a_quota_is_free_again_after_its_drop() {
    let quota = CqQuota::default();
    let (first, second) = (quota.take(2).unwrap(), quota.take(2).unwrap());
    assert!(quota.take(2).is_none());
    drop(first);
    let third = quota.take(2).unwrap();
    assert!(quota.take(2).is_none());
    drop((second, third));
    assert!(quota.take(1).is_some());
    assert!(quota.take(0).is_none());
}
