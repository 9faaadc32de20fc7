//! A panic in the background thread.

use std::sync::atomic::AtomicU32;

use super::*;
use crate::cq::AsyncEvent;
use crate::driver::{AfterProgress, Hooks};

/// A hook that panics in the next calls.
#[derive(Default)]
struct Panics(AtomicU32);

impl AfterProgress for Panics {
    fn is_due(&self) -> bool {
        false
    }

    fn act(&self) {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
            panic!("a panic of the test");
        }
    }
}

fn config(hook: &Arc<Panics>) -> EngineConfig {
    let after_progress = Some(Arc::clone(hook) as Arc<dyn AfterProgress>);
    EngineConfig { hooks: Hooks { after_progress, events: None }, ..EngineConfig::default() }
}

fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The work requests complete as flushed, and a new queue pair works.
#[test]
fn a_panic_fails_the_device_and_leaves_no_queue_pair_hanging() {
    let hook = Arc::new(Panics::default());
    let (a, b) = pair_of(21, [config(&hook), EngineConfig::default()]);
    a.recv(64);
    hook.0.store(1, Ordering::Relaxed);
    a.engine.shared.waker.descriptor().wake();
    let flushed = a.completion(|| std::thread::sleep(Duration::from_millis(1)));
    assert_eq!(flushed.status, WcStatus::WrFlushErr);
    let device = a.engine.device();
    let events: Vec<_> = std::iter::from_fn(|| device.events().next_event()).collect();
    assert!(events.contains(&AsyncEvent::DeviceFatal), "{events:?}");
    events.iter().for_each(|event| device.events().ack(event));
    // The thread goes on: it delivers a message to queue pairs that are connected anew.
    for end in [&a, &b] {
        let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        end.engine.modify_qp(end.qp, &reset, QpAttrMask::STATE).unwrap();
    }
    a.connect(b.qp.qpn(), address(21, 2).into());
    b.connect(a.qp.qpn(), address(21, 1).into());
    a.recv(64);
    b.post(SendOp::Send, 64);
    // Nothing polls, so the thread must receive.
    wait("the message", || a.engine.device().counters().value(Counter::RcvdPkts) > 0);
    assert_eq!(a.poll_one().wr_id, 2);
}

#[test]
fn after_eight_panics_the_thread_ends_and_the_device_can_be_closed() {
    let hook = Arc::new(Panics::default());
    let end = End::new(address(22, 1), config(&hook));
    hook.0.store(100, Ordering::Relaxed);
    wait("eight panics", || {
        end.engine.shared.waker.descriptor().wake();
        hook.0.load(Ordering::Relaxed) == 92
    });
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(hook.0.load(Ordering::Relaxed), 92);
}
