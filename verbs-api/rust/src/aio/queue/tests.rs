//! Tests of a queue pair whose completion queue failed, and of the wakers that a dispatch calls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use urxe_stack::cq::WcStatus;
#[cfg(feature = "sim")]
use urxe_stack::qp::work_request::SendOp;
use urxe_stack::time::Time;

use super::*;
use crate::aio::busy_polling::Role;
#[cfg(feature = "sim")]
use crate::aio::operation::{Local, Work};
#[cfg(feature = "sim")]
use crate::{ConnectOptions, aio::AsyncQueuePair};

const OVERRUN: CqError = CqError::Overrun { capacity: 4 };

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a counter of calls, and a waker that adds to it.
fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

fn posted(state: &mut State) -> Key {
    state.fill_free(&mut None).expect("a slot is free").expect("the queue is usable")
}

/// Returns the completion of a request.
fn completion(wr_id: u64, status: WcStatus) -> Completion {
    let mut completion = Completion::default();
    (completion.wr_id, completion.status) = (wr_id, status);
    completion
}

/// Returns two connected queue pairs with room for some requests.
#[cfg(feature = "sim")]
fn connected(max_send_wr: u32) -> (crate::sim::Fabric, [AsyncQueuePair; 2]) {
    let fabric = crate::sim::Fabric::manual(1);
    let pair = [1, 2].map(|host| {
        let pd = fabric.device([10, 0, 0, host]).unwrap().alloc_pd().unwrap();
        AsyncQueuePair::builder().max_send_wr(max_send_wr).create(&pd).unwrap()
    });
    pair[0].connect(&pair[1].endpoint(), &ConnectOptions::default()).unwrap();
    pair[1].connect(&pair[0].endpoint(), &ConnectOptions::default()).unwrap();
    (fabric, pair)
}

#[test]
fn a_failed_completion_queue_ends_all_waits_once() {
    let mut state = State::new(2, 2).unwrap();
    let (count, waker) = counted();
    let [done, waits] = [(); 2].map(|()| posted(&mut state));
    assert!(state.store_waker(waits, waker.clone()).is_none());
    assert!(state.fill_free(&mut None).is_none(), "no slot is free");
    let turn = state.turns.wait(waker.clone());
    let receiver = state.receivers.wait(waker.clone());
    let mut released = Released::default();
    state.complete(completion(done.wr_id(), WcStatus::Success), 0, &mut released);
    for _ in 0..2 {
        state.fail(OVERRUN, &mut released);
        assert_eq!(released.others.len(), 3);
    }
    released.finish();
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
    // The completion that came before is still there.
    assert!(matches!(state.take_done(done, &mut Vec::new()), Some(Ok(_))));
    let failed = Err(OperationError::Cq(OVERRUN));
    assert_eq!(state.take_done(waits, &mut Vec::new()), Some(failed));
    assert!(state.turns.poll(turn, &mut waker.clone()));
    assert!(state.receivers.poll(receiver, &mut waker.clone()));
    assert!(state.is_receive_ended());
}

#[test]
fn no_slot_is_filled_when_no_completion_can_free_one() {
    let mut state = State::new(1, 0).unwrap();
    let first = posted(&mut state);
    let mut others = Vec::new();
    assert_eq!(state.take_done(first, &mut others), None, "it is outstanding");
    state.fail(OVERRUN, &mut Released::default());
    assert_eq!(state.fill(&mut None), Err(OperationError::Cq(OVERRUN)));
}

#[test]
fn a_failed_receive_ends_the_waits_for_messages_and_no_other() {
    let mut state = State::new(1, 1).unwrap();
    let (count, waker) = counted();
    let sent = posted(&mut state);
    state.store_waker(sent, waker.clone());
    let _receivers = [(); 3].map(|()| state.receivers.wait(waker.clone()));
    assert!(!state.is_receive_ended());
    let mut released = Released::default();
    for status in [WcStatus::LocLenErr, WcStatus::WrFlushErr] {
        state.complete(completion(RECEIVE, status), 0, &mut released);
    }
    released.finish();
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
    assert!(state.is_receive_ended());
    let reason = state.receive_error.map(|error| error.status);
    assert_eq!(reason, Some(WcStatus::LocLenErr), "the first error is the reason");
}

#[test]
fn a_queue_pair_is_busy_while_a_completion_or_a_message_is_expected() {
    let mut state = State::new(2, 1).unwrap();
    assert!(!state.is_busy());
    let sent = posted(&mut state);
    assert!(state.is_busy());
    state.complete(completion(sent.wr_id(), WcStatus::Success), 0, &mut Released::default());
    assert!(!state.is_busy(), "the completion came, and its future has not taken it");
    assert!(state.take_done(sent, &mut Vec::new()).is_some());
    assert!(!state.is_busy());
    let receiver = state.receivers.wait(Waker::noop().clone());
    assert!(state.is_busy());
    state.receivers.leave(receiver);
    assert!(!state.is_busy());
}

/// An event arms the completion queue again only for completions that are still expected.
/// Otherwise each later operation would cause an event.
#[cfg(feature = "sim")]
#[test]
fn the_completion_queue_stays_armed_only_while_completions_are_expected() {
    let (fabric, [qp, _peer]) = connected(2);
    let inner = &qp.inner;
    let work = Work::new(SendOp::Send, Local::None);
    let [sent, later] = [(); 2].map(|()| posted(&mut lock(&inner.state)));
    for (key, is_armed) in [(sent, true), (later, false)] {
        inner.arm();
        inner.qp().post_signaled::<1>(&[work.request(inner, key)]).unwrap();
        fabric.run_for(std::time::Duration::from_millis(1)).unwrap();
        assert_eq!(lock(&inner.state).is_armed, is_armed, "{key:?}");
    }
}

/// Another future goes on only if its operation is outstanding.
#[test]
fn the_last_operation_that_sleeps_may_poll_for_the_others() {
    let mut state = State::new(2, 1).unwrap();
    let (count, waker) = counted();
    let [first, last] = [(); 2].map(|()| posted(&mut state));
    assert!(state.sleeper().is_none());
    for key in [first, last] {
        state.store_waker(key, waker.clone());
    }
    assert!(state.sleeper().is_some_and(|found| found.will_wake(&waker)));
    assert!(state.sleeper().is_none(), "it is woken once");
    state.store_waker(last, waker.clone());
    state.complete(completion(last.wr_id(), WcStatus::Success), 0, &mut Released::default());
    assert!(state.sleeper().is_none(), "its completion has woken it");
    // A task that waits for a message comes first.
    let (_, receiver) = counted();
    state.store_waker(first, waker);
    state.receivers.wait(receiver.clone());
    assert!(state.sleeper().is_some_and(|found| found.will_wake(&receiver)));
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
}

#[test]
fn a_key_is_that_of_one_use_of_a_slot() {
    let mut state = State::new(1, 0).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let key = posted(&mut state);
        assert!(!seen.contains(&key));
        assert_eq!(key.wr_id() & RECEIVE, 0);
        state.complete(completion(key.wr_id(), WcStatus::Success), 0, &mut Released::default());
        assert!(state.take_done(key, &mut Vec::new()).is_some());
        assert!(state.take_done(key, &mut Vec::new()).is_none(), "the slot is free");
        seen.push(key);
    }
    // The number of uses wraps, and never marks a receive.
    state.slots[0].generation = u32::MAX >> 1;
    let last = posted(&mut state);
    assert_eq!(last.wr_id() & RECEIVE, 0);
    state.vacate(last);
    assert_eq!(posted(&mut state).wr_id(), 0);
}

/// The wait for the first request after a poll in vain does not poll, and counts as one such wait.
#[test]
fn a_request_ends_the_rest_after_a_poll_in_vain() {
    let mut state = State::new(1, 0).unwrap();
    let (mut number, now) = (0, Time::from_ns(1_000_000));
    assert_eq!(state.polling.role(&mut number, now, 0), Role::Claimed);
    assert_eq!(state.polling.role(&mut number, now, 0), Role::Expired);
    let sent = posted(&mut state);
    assert_eq!(state.polling.role(&mut 0, now, 0), Role::Rests);
    state.complete(completion(sent.wr_id(), WcStatus::Success), 0, &mut Released::default());
    assert_eq!(state.polling.role(&mut 0, now, 0), Role::Claimed);
}

/// The completions are in the completion queue, and no event has come for them.
#[cfg(feature = "sim")]
#[test]
fn an_operation_that_finds_the_completion_of_another_hands_it_on() {
    for order in [[0, 1], [1, 0]] {
        let (fabric, [qp, _peer]) = connected(2);
        let inner = &qp.inner;
        let keys = [(); 2].map(|()| posted(&mut lock(&inner.state)));
        let work = Work::new(SendOp::Send, Local::None);
        for key in keys {
            assert!(inner.qp().post_signaled::<1>(&[work.request(inner, key)]).is_ok());
        }
        let ((count, waker), mut ticket) = (counted(), None);
        assert!(inner.acquire(&mut ticket, &waker, &mut None).is_none());
        fabric.run_for(std::time::Duration::from_millis(1)).unwrap();
        assert!(matches!(inner.take_first(keys[order[0]]), Some(Ok(_))), "{order:?}");
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "the slot is free");
        assert!(matches!(inner.take_first(keys[order[1]]), Some(Ok(_))), "{order:?}");
        assert!(
            ticket.is_some_and(|ticket| lock(&inner.state).turns.poll(ticket, &mut waker.clone()))
        );
    }
}

/// A batch takes its own completions from the completion queue, and hands those of others on.
#[cfg(feature = "sim")]
#[test]
fn a_batch_takes_its_completions_in_order_and_hands_others_on() {
    let (fabric, [qp, peer]) = connected(4);
    let inner = &qp.inner;
    let [first, of_another, second, last] = [(); 4].map(|()| posted(&mut lock(&inner.state)));
    let work = Work::new(SendOp::Send, Local::None);
    let send = |key| inner.qp().post_signaled::<1>(&[work.request(inner, key)]).unwrap();
    for key in [first, of_another, second] {
        send(key);
    }
    let ((count, waker), mut ticket) = (counted(), None);
    assert!(inner.acquire(&mut ticket, &waker, &mut None).is_none());
    assert!(lock(&inner.state).store_waker(second, waker).is_none());
    fabric.run_for(std::time::Duration::from_millis(1)).unwrap();
    let keys = [first, second, last];
    assert_eq!(inner.take_in_order(keys.into_iter()), (2, None));
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "a slot is free, and the batch is running");
    assert!(matches!(inner.take(of_another, None), Some(Ok(_))));
    assert_eq!(inner.take_in_order([last].into_iter()), (0, None));
    // The peer ends, and the last request fails.
    drop(peer);
    send(last);
    fabric.run_for(std::time::Duration::from_secs(60)).unwrap();
    let (freed, failed) = inner.take_in_order([last].into_iter());
    assert_eq!(freed, 1);
    assert!(matches!(failed, Some(OperationError::Failed(_))), "{failed:?}");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the program panics");
    }
}

#[test]
fn a_waker_that_panics_delays_no_other() {
    let (count, waker) = counted();
    let mut released = Released::default();
    released.wakers[0] = Some(waker.clone());
    released.wakers[1] = Some(Waker::from(Arc::new(Panics)));
    released.wakers[BATCH - 1] = Some(waker.clone());
    released.others.push(waker);
    let panicked = catch_unwind(AssertUnwindSafe(|| released.finish()));
    assert!(panicked.is_err(), "the thread learns of the panic");
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
}
