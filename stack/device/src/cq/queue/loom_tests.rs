//! Interleavings of arming, pushing, polling and destroying.

use loom::thread;
use urxe_wire::Qpn;

use super::*;
use crate::cq::{NoWake, WcOpcode, WcStatus};

fn queue(channel: &Arc<CompletionChannel>, capacity: u32) -> Arc<Cq> {
    let cq = Cq::new(CqConfig {
        id: CqId(0),
        capacity,
        max_capacity: 16,
        channel: Some(Arc::clone(channel)),
        events: None,
        moderation_timers: Arc::default(),
        context: 0,
    });
    Arc::new(cq.expect("the capacity is allowed"))
}

fn channel() -> Arc<CompletionChannel> {
    Arc::new(CompletionChannel::new(Box::new(NoWake)))
}

fn done(wr_id: u64, status: WcStatus) -> Completion {
    Completion::new(wr_id, Qpn::QP1, WcOpcode::Send, status)
}

/// Polls until the queue looks empty. Returns the number of completions.
fn drain(cq: &Cq) -> usize {
    let mut out = [Completion::default()];
    std::iter::from_fn(|| (cq.poll(&mut out) == Ok(1)).then_some(())).count()
}

/// A program that missed no completion may sleep: later completions cause exactly one event.
#[test]
fn loom_no_wake_up_is_lost_between_arm_and_push() {
    loom::model(|| {
        let channel = channel();
        let cq = queue(&channel, 4);
        let pushers: Vec<_> = (0..2)
            .map(|wr_id| {
                let cq = Arc::clone(&cq);
                thread::spawn(move || cq.push(done(wr_id, WcStatus::Success), false).unwrap())
            })
            .collect();
        let before = drain(&cq);
        let missed = cq.arm(ArmKind::Next);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let after = 2 - before;
        let events = channel.waiting_events();
        if missed {
            assert!(after > 0, "something was in the queue");
            assert!(events <= 1);
        } else {
            assert_eq!(events, u64::from(after > 0));
        }
        assert_eq!(drain(&cq), after);
    });
}

/// The same for arming for solicited completions, with an unsolicited one and one in error.
#[test]
fn loom_solicited_arming_fires_on_the_error_alone() {
    loom::model(|| {
        let channel = channel();
        let cq = queue(&channel, 4);
        let pusher = thread::spawn({
            let cq = Arc::clone(&cq);
            move || {
                let mut writer = cq.lock();
                writer.push(done(0, WcStatus::Success), false).unwrap();
                drop(writer);
                cq.push(done(1, WcStatus::RetryExcErr), false).unwrap();
            }
        });
        let missed = cq.arm(ArmKind::Solicited);
        let at_arm = cq.len();
        pusher.join().unwrap();
        if missed {
            assert!(at_arm > 0);
        } else {
            assert_eq!(channel.waiting_events(), 1);
        }
    });
}

/// The number that is read without the lock never hides a completion from the thread that pushed
/// it, or from the thread that took its event.
#[test]
fn loom_the_thread_that_gets_the_event_finds_the_completion() {
    loom::model(|| {
        let channel = channel();
        let cq = queue(&channel, 4);
        assert!(!cq.arm(ArmKind::Next));
        let pusher = thread::spawn({
            let cq = Arc::clone(&cq);
            move || {
                cq.push(done(0, WcStatus::Success), false).unwrap();
                assert!(cq.len() <= 1);
            }
        });
        if channel.next_event().is_some() {
            assert_eq!(drain(&cq), 1);
            cq.ack_events(1);
        }
        pusher.join().unwrap();
    });
}

/// Either the work queue gets its reference and destruction fails as busy, or destruction succeeds
/// and the reference is refused.
#[test]
fn loom_destruction_and_a_new_user_exclude_each_other() {
    loom::model(|| {
        let channel = channel();
        let cq = queue(&channel, 1);
        let user = thread::spawn({
            let cq = Arc::clone(&cq);
            move || {
                let Ok(hold) = CqRef::new(cq) else { return false };
                hold.push(done(0, WcStatus::Success), false).unwrap();
                assert_ne!(hold.users(), 0);
                true
            }
        });
        let destroyed = cq.destroy().is_ok();
        let used = user.join().unwrap();
        assert!(destroyed || used);
        assert_eq!(channel.cq_count(), usize::from(!destroyed));
        assert_eq!(cq.destroy().is_ok(), !destroyed);
    });
}

/// Destruction returns only after the event that was taken is acknowledged.
#[test]
fn loom_destruction_awaits_the_acknowledgement() {
    loom::model(|| {
        let channel = channel();
        let cq = queue(&channel, 2);
        cq.arm(ArmKind::Next);
        cq.push(done(0, WcStatus::Success), false).unwrap();
        let acknowledged = Arc::new(AtomicU32::new(0));
        let taken = channel.next_event().is_some();
        assert!(taken);
        let reader = thread::spawn({
            let (cq, acknowledged) = (Arc::clone(&cq), Arc::clone(&acknowledged));
            move || {
                acknowledged.store(1, Ordering::Relaxed);
                cq.ack_events(1);
            }
        });
        cq.destroy().unwrap();
        assert_eq!(acknowledged.load(Ordering::Relaxed), 1);
        reader.join().unwrap();
    });
}

/// Two threads poll one by one while a third pushes: each completion is polled once, and no thread
/// waits forever.
#[test]
fn loom_one_thread_polls_one_by_one_at_a_time() {
    loom::model(|| {
        let cq = queue(&channel(), 4);
        cq.push(done(0, WcStatus::Success), false).unwrap();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let cq = Arc::clone(&cq);
                thread::spawn(move || {
                    let Some(mut poller) = cq.start_poll().unwrap() else { return 0 };
                    1 + usize::from(poller.advance().unwrap())
                })
            })
            .collect();
        cq.push(done(1, WcStatus::Success), false).unwrap();
        let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken + drain(&cq), 2);
        assert!(cq.start_poll().unwrap().is_none());
    });
}

/// A batched lock outlives the users of the queue: its event is sent before the queue is destroyed,
/// and never after.
#[test]
fn loom_destruction_waits_for_the_batched_lock() {
    loom::model(|| {
        let events = Arc::new(AsyncEvents::new(Box::new(NoWake)));
        let cq = Arc::new(
            Cq::new(CqConfig {
                id: CqId(0),
                capacity: 1,
                max_capacity: 16,
                channel: None,
                events: Some(Arc::clone(&events)),
                moderation_timers: Arc::default(),
                context: 0,
            })
            .unwrap(),
        );
        let user = Arc::new(Mutex::new(Some(CqRef::new(Arc::clone(&cq)).unwrap())));
        let carrier = {
            let (cq, user) = (Arc::clone(&cq), Arc::clone(&user));
            thread::spawn(move || {
                let held = lock(&user);
                if held.is_some() {
                    let mut writer = cq.lock_for_batch();
                    writer.push(done(1, WcStatus::Success), false).unwrap();
                    writer.push(done(2, WcStatus::Success), false).unwrap_err();
                    // As when a queue pair is unlocked.
                    drop(held);
                }
            })
        };
        drop(lock(&user).take());
        cq.destroy_without_wait().unwrap();
        carrier.join().unwrap();
        assert_eq!(events.next_event(), None, "nothing is told of a queue that is gone");
    });
}
