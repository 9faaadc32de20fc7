//! Interleavings of adding, acknowledging and retiring events.

use loom::thread;

use super::*;
use crate::cq::NoWake;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::{AtomicU32, Ordering};

/// Retiring an object returns after its event is acknowledged, and does not affect the event of
/// another object.
#[test]
fn loom_retiring_awaits_the_acknowledgement() {
    loom::model(|| {
        let events = Arc::new(AsyncEvents::new(Box::new(NoWake)));
        let acknowledged = Arc::new(AtomicU32::new(0));
        let mine = AsyncEvent::Cq(CqEventType::CqErr, CqId(1));
        let other = AsyncEvent::Cq(CqEventType::CqErr, CqId(2));
        events.push(mine);
        assert_eq!(events.next_event(), Some(mine));
        let reader = thread::spawn({
            let (events, acknowledged) = (Arc::clone(&events), Arc::clone(&acknowledged));
            move || {
                acknowledged.store(1, Ordering::Relaxed);
                events.ack(&mine);
            }
        });
        let reporter = thread::spawn({
            let events = Arc::clone(&events);
            move || events.push(other)
        });
        events.retire(EventObject::Cq(CqId(1)));
        assert_eq!(acknowledged.load(Ordering::Relaxed), 1);
        reader.join().unwrap();
        reporter.join().unwrap();
        assert_eq!(events.next_event(), Some(other));
    });
}
