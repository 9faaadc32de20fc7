//! Tests of the time and the cause of events of moderated queues.

use urxe_wire::Qpn;

use super::*;
use crate::cq::{ArmKind, Completion, CompletionChannel, CqConfig, CqError, WcOpcode, WcStatus};

struct Moderated {
    cq: Arc<Cq>,
    moderation_timers: Arc<ModerationTimers>,
}

impl Moderated {
    fn new(capacity: u32, moderation: Moderation) -> Self {
        let moderation_timers = Arc::new(ModerationTimers::default());
        let config = CqConfig {
            id: CqId(9),
            capacity,
            max_capacity: 1024,
            channel: Some(Arc::new(CompletionChannel::new(Box::new(NoWake)))),
            events: None,
            moderation_timers: Arc::clone(&moderation_timers),
            context: 0,
        };
        let cq = Arc::new(Cq::new(config).unwrap());
        cq.moderate(moderation).unwrap();
        Self { cq, moderation_timers }
    }

    fn complete(&self, at_us: u64, status: WcStatus, solicited: bool) {
        let mut completion = Completion::new(0, Qpn::QP1, WcOpcode::Recv, status);
        completion.timestamp_ns = at_us * 1000;
        let _ = self.cq.push(completion, solicited);
    }

    fn push(&self, at_us: u64) {
        self.complete(at_us, WcStatus::Success, false);
    }

    fn expire(&self, at_us: u64) {
        self.moderation_timers.expire(Time::from_ns(at_us * 1000), usize::MAX);
    }

    fn events(&self) -> usize {
        std::iter::from_fn(|| self.cq.channel().unwrap().next_event())
            .inspect(|_| self.cq.ack_events(1))
            .count()
    }
}

fn after(count: u16, period_us: u16) -> Moderation {
    Moderation { count, period_us }
}

#[test]
fn the_event_comes_with_the_last_of_the_count() {
    let queue = Moderated::new(64, after(4, 1000));
    assert_eq!(queue.cq.moderation(), after(4, 1000));
    for round in 0..3 {
        queue.cq.arm(ArmKind::Next);
        for n in 0..3 {
            queue.push(round * 10 + n);
            assert_eq!(queue.events(), 0, "round {round}, completion {n}");
        }
        queue.push(round * 10 + 3);
        assert_eq!(queue.events(), 1);
        // The queue is not armed: these cause no event and do not count for the next round.
        queue.push(round * 10 + 4);
        queue.push(round * 10 + 5);
        assert_eq!(queue.events(), 0);
    }
    queue.expire(1_000_000);
    assert_eq!(queue.events(), 0, "what was told is not told again when the period ends");
}

#[test]
fn the_event_comes_when_the_period_since_the_first_has_passed() {
    let queue = Moderated::new(64, after(4, 1000));
    queue.cq.arm(ArmKind::Next);
    queue.push(500);
    queue.push(1400);
    assert_eq!(queue.moderation_timers.next(), Time::from_ns(1_500_000));
    queue.expire(1499);
    assert_eq!(queue.events(), 0);
    queue.expire(1500);
    assert_eq!(queue.events(), 1);
    assert_eq!(queue.moderation_timers.next(), Time::NEVER);
    queue.expire(10_000);
    assert_eq!(queue.events(), 0);
}

#[test]
fn a_period_that_the_count_cut_short_does_not_end_the_next_one() {
    let queue = Moderated::new(64, after(2, 1000));
    queue.cq.arm(ArmKind::Next);
    queue.push(0);
    queue.push(1);
    assert_eq!(queue.events(), 1);
    queue.cq.arm(ArmKind::Next);
    queue.push(900);
    // The timer of the first period is due now.
    queue.expire(1000);
    assert_eq!(queue.events(), 0);
    assert_eq!(queue.moderation_timers.next(), Time::from_ns(1_900_000));
    queue.expire(1900);
    assert_eq!(queue.events(), 1);
}

#[test]
fn a_count_alone_and_a_period_alone_are_enough() {
    let queue = Moderated::new(64, after(3, 0));
    queue.cq.arm(ArmKind::Next);
    queue.push(0);
    queue.push(0);
    assert_eq!((queue.events(), queue.moderation_timers.next()), (0, Time::NEVER));
    queue.push(0);
    assert_eq!(queue.events(), 1);
    queue.cq.moderate(after(0, 7)).unwrap();
    queue.cq.arm(ArmKind::Next);
    (0..40).for_each(|n| queue.push(n / 10));
    assert_eq!(queue.events(), 0);
    queue.expire(7);
    assert_eq!(queue.events(), 1);
    for at_once in [after(0, 0), after(1, 0), after(1, 1000)] {
        queue.cq.moderate(at_once).unwrap();
        queue.cq.arm(ArmKind::Next);
        queue.push(100);
        assert_eq!(queue.events(), 1, "{at_once:?}");
    }
}

#[test]
fn after_arming_for_solicited_ones_only_those_count() {
    let queue = Moderated::new(64, after(2, 1000));
    queue.cq.arm(ArmKind::Solicited);
    (0..5).for_each(|n| queue.push(n));
    assert_eq!((queue.events(), queue.moderation_timers.next()), (0, Time::NEVER));
    queue.complete(10, WcStatus::Success, true);
    assert_eq!(
        queue.moderation_timers.next(),
        Time::from_ns(1_010_000),
        "the period begins with the first solicited one"
    );
    queue.push(11);
    assert_eq!(queue.events(), 0);
    queue.complete(12, WcStatus::Success, true);
    assert_eq!(queue.events(), 1);
}

#[test]
fn an_error_and_an_overrun_cause_an_event_at_once() {
    for arm in [ArmKind::Next, ArmKind::Solicited] {
        let queue = Moderated::new(4, after(100, 60_000));
        queue.cq.arm(arm);
        queue.complete(0, WcStatus::Success, true);
        assert_eq!(queue.events(), 0);
        queue.complete(1, WcStatus::WrFlushErr, false);
        assert_eq!(queue.events(), 1);
        queue.cq.arm(arm);
        (2..4).for_each(|n| queue.push(n));
        assert_eq!(queue.events(), 0);
        queue.push(5);
        assert_eq!(queue.events(), 1, "the queue overran");
    }
}

#[test]
fn new_limits_apply_to_completions_that_were_counted_already() {
    let queue = Moderated::new(64, after(10, 5000));
    queue.cq.arm(ArmKind::Next);
    (0..3).for_each(|n| queue.push(n));
    queue.cq.moderate(after(10, 1000)).unwrap();
    assert_eq!((queue.events(), queue.moderation_timers.next()), (0, Time::from_ns(1_000_000)));
    queue.cq.moderate(after(4, 9000)).unwrap();
    queue.expire(1000);
    queue.expire(8999);
    assert_eq!((queue.events(), queue.moderation_timers.next()), (0, Time::from_ns(9_000_000)));
    queue.cq.moderate(after(3, 9000)).unwrap();
    assert_eq!(queue.events(), 1);
    queue.cq.arm(ArmKind::Next);
    queue.push(20);
    queue.cq.moderate(Moderation::default()).unwrap();
    assert_eq!(queue.events(), 1);
}

#[test]
fn completions_left_in_the_queue_cause_an_event_at_once_or_when_the_period_ends() {
    // Pushed before the queue was armed: no other event would report this one.
    let queue = Moderated::new(64, after(10, 1000));
    queue.push(0);
    queue.cq.arm(ArmKind::Next);
    queue.cq.notify_unpolled();
    assert_eq!(queue.events(), 1);
    // Counted by moderation: the timer sends the event.
    queue.cq.arm(ArmKind::Next);
    queue.push(5);
    queue.cq.notify_unpolled();
    assert_eq!(queue.events(), 0);
    queue.expire(1005);
    assert_eq!(queue.events(), 1);
    // Counted without a period: the count may never be reached.
    queue.cq.moderate(after(10, 0)).unwrap();
    queue.cq.arm(ArmKind::Next);
    queue.push(2000);
    queue.cq.notify_unpolled();
    assert_eq!(queue.events(), 1);
}

#[test]
fn a_destroyed_queue_has_no_timer() {
    let queue = Moderated::new(64, after(10, 1000));
    queue.cq.arm(ArmKind::Next);
    queue.push(0);
    let Moderated { cq, moderation_timers } = queue;
    cq.destroy().unwrap();
    assert_eq!(cq.moderate(after(1, 1)), Err(CqError::Destroyed));
    drop(cq);
    assert!(lock(&moderation_timers.queues).is_empty());
    moderation_timers.expire(Time::from_ns(1 << 40), usize::MAX);
    assert_eq!(moderation_timers.next(), Time::NEVER);
}
