//! Interleavings of sending, taking and withdrawing events, with a waker that counts like an event
//! descriptor.

use std::sync::Arc as StdArc;

use loom::thread;

use super::*;
use crate::cq::test_wake::CountingWake;
use urxe_types::sync::Arc;

fn counted() -> (Arc<CompletionChannel>, StdArc<CountingWake>) {
    let count = CountingWake::new();
    (Arc::new(CompletionChannel::new(Box::new(StdArc::clone(&count)))), count)
}

fn event(cq: u32) -> CqEvent {
    CqEvent { cq: CqId(cq), context: 0 }
}

fn reader(
    channel: &Arc<CompletionChannel>,
    count: &StdArc<CountingWake>,
) -> thread::JoinHandle<Option<CqEvent>> {
    let (channel, count) = (Arc::clone(channel), StdArc::clone(count));
    thread::spawn(move || if count.try_take() { channel.next_event_for_count() } else { None })
}

/// Each count yields an event, from either of two queues and with another reader.
#[test]
fn loom_every_count_stands_for_an_event() {
    loom::model(|| {
        let (channel, count) = counted();
        let slots = [channel.attach(event(0)), channel.attach(event(1))];
        let sender = thread::spawn({
            let channel = Arc::clone(&channel);
            move || slots.map(|slot| channel.notify(slot))
        });
        let reader = thread::spawn({
            let (channel, count) = (Arc::clone(&channel), StdArc::clone(&count));
            move || {
                let counted = count.try_take();
                assert!(!counted || channel.next_event_for_count().is_some());
                u64::from(counted)
            }
        });
        let mut taken = 0;
        if count.try_take() {
            assert!(channel.next_event_for_count().is_some());
            taken += 1;
        }
        sender.join().unwrap();
        taken += reader.join().unwrap();
        assert_eq!(channel.waiting_events(), 2 - taken);
        assert_eq!(u64::from(count.count()), 2 - taken);
    });
}

/// With a reader that takes a count, a reader that does not, and a sender: at the end there are as
/// many counts as events.
#[test]
fn loom_taking_without_a_count_keeps_counts_and_events_together() {
    loom::model(|| {
        let (channel, count) = counted();
        let slot = channel.attach(event(0));
        channel.notify(slot);
        let reader = reader(&channel, &count);
        let sender = thread::spawn({
            let channel = Arc::clone(&channel);
            move || channel.notify(slot)
        });
        let mut taken = u64::from(channel.next_event().is_some());
        sender.join().unwrap();
        taken += u64::from(reader.join().unwrap().is_some());
        assert_eq!(channel.waiting_events(), 2 - taken);
        assert_eq!(u64::from(count.count()), 2 - taken);
    });
}

/// With a reader and a sender while the events of another queue are withdrawn: at the end there are
/// as many counts as events, so the descriptor is readable exactly while an event waits.
#[test]
fn loom_withdrawing_keeps_counts_and_events_together() {
    loom::model(|| {
        let (channel, count) = counted();
        let [leaving, staying] = [channel.attach(event(0)), channel.attach(event(1))];
        channel.notify(leaving);
        let sender = thread::spawn({
            let channel = Arc::clone(&channel);
            move || channel.notify(staying)
        });
        let reader = reader(&channel, &count);
        channel.detach(leaving, Acknowledgements::Ignore);
        sender.join().unwrap();
        let taken = reader.join().unwrap();
        assert_eq!(channel.waiting_events(), u64::from(taken != Some(event(1))));
        assert_eq!(u64::from(count.count()), channel.waiting_events());
        assert_eq!(channel.cq_count(), 1);
    });
}
