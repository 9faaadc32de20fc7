//! ECN marks of routers: a growing queue is reported before it overflows, and the sender reduces
//! its window.

use std::time::Duration;

use urxe::sim::{Fabric, LinkFaults, SimCounters};
use urxe::*;

use crate::common::{End, SIZE, pattern, simulated_pair};

/// Returns a link of 1 Gbit/s with a queue of this size.
fn narrow(queue_bytes: u64, mark_above_bytes: u64) -> LinkFaults {
    LinkFaults {
        bandwidth_bps: Some(1_000_000_000),
        queue_bytes,
        mark_above_bytes,
        ..LinkFaults::default()
    }
}

struct Outcome {
    time: Duration,
    network: SimCounters,
    told: u64,
    obeyed: u64,
}

/// Transfers 16 MiB over a narrow link, with several outstanding operations.
fn move_over(faults: LinkFaults, read: bool) -> Outcome {
    let fabric = Fabric::new(5);
    fabric.set_faults(faults);
    let (a, b) = simulated_pair(&fabric);
    let data = pattern(SIZE, 9);
    let (from, to) = if read { (&b, &a) } else { (&a, &b) };
    from.region.write(0, &data).unwrap();
    let start = fabric.now();
    let request = || {
        let (here, there) = (a.slice(..), b.region.remote());
        if read { SendRequest::read(here, there) } else { SendRequest::write(here, there) }
    };
    for nr in 0..16 {
        a.post(request());
        if nr >= 4 {
            let _ = a.complete();
        }
    }
    for _ in 0..4 {
        let _ = a.complete();
    }
    assert!(to.bytes(0, SIZE) == data);
    let count = |end: &End, counter| end.device.counter(counter);
    Outcome {
        time: Duration::from_nanos(fabric.now().since_ns(start)),
        network: fabric.counters(),
        told: count(to, Counter::CnpSent),
        obeyed: count(from, Counter::CnpHandled),
    }
}

/// The time that 16 MiB and their headers take at 1 Gbit/s.
const LINE_RATE: Duration = Duration::from_millis(137);

#[test]
fn a_sender_with_marks_loses_nothing_and_keeps_the_line_busy() {
    let dropping = move_over(narrow(128 << 10, u64::MAX), false);
    assert!(
        dropping.network.queue_overflow > 0,
        "the queue is too short for a window: {:?}",
        dropping.network
    );
    assert_eq!((dropping.network.marked, dropping.told), (0, 0));
    // After losses the window is small. A retransmitted packet may be lost, too, and is then
    // probed.
    assert!(dropping.time < LINE_RATE * 3, "{:?}", dropping.time);
    let marking = move_over(narrow(128 << 10, 32 << 10), false);
    eprintln!("{:?} where routers drop, {:?} where they mark", dropping.time, marking.time);
    assert_eq!(marking.network.queue_overflow, 0);
    assert!(marking.told > 0 && marking.told <= marking.network.marked);
    assert_eq!(marking.obeyed, marking.told);
    assert!(marking.time < LINE_RATE * 11 / 10, "{:?}", marking.time);
}

/// The sender of READ responses has no window. The requester sees the marks first and requests
/// less.
#[test]
fn a_requester_with_marked_responses_requests_less() {
    let dropping = move_over(narrow(80 << 10, u64::MAX), true);
    assert!(dropping.network.queue_overflow > 0, "the queue is too short for what is asked for");
    let marking = move_over(narrow(80 << 10, 16 << 10), true);
    eprintln!("{:?} where routers drop, {:?} where they mark", dropping.time, marking.time);
    assert!(marking.told > 0);
    assert!(
        marking.network.queue_overflow * 10 < dropping.network.queue_overflow,
        "{:?}",
        marking.network
    );
    assert!(marking.time < LINE_RATE * 12 / 10, "{:?}", marking.time);
}
