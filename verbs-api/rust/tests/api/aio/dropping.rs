//! Futures that are dropped in each of their states.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use urxe::sim::{Fabric, Rng};
use urxe::{ConnectOptions, Data, SendRequest};

use super::{Tasks, builder, poll_once, simulated};
use crate::common::{End, WakeCount};

const STEP: Duration = Duration::from_millis(1);

#[test]
fn a_future_that_was_never_polled_posts_nothing() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder());
    b.region.store_u64(0, 7).unwrap();
    drop(a.qp.write(b"12345678", b.remote(0, 8)));
    fabric.run_for(STEP).unwrap();
    assert_eq!(b.region.load_u64(0).unwrap(), 7);
    assert_eq!(fabric.counters().sent, 0);
}

#[test]
fn a_posted_operation_keeps_its_memory_until_it_completes() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder().max_send_wr(1));
    a.region.write(0, b"before the end").unwrap();
    let memory = Arc::downgrade(&a.region);
    let mut write = a.qp.write(a.share(0, 14), b.remote(0, 14));
    assert!(poll_once(&mut write).is_pending());
    drop(write);
    let qp = a.qp;
    drop(a.region);
    assert!(memory.upgrade().is_some(), "the request is outstanding");
    fabric.run_for(STEP).unwrap();
    assert!(memory.upgrade().is_none(), "the completion releases the region");
    assert_eq!(b.region.read_vec(0, 14).unwrap(), b"before the end");
    // The only slot is free again.
    let mut next = qp.write(b"x", b.remote(0, 1));
    assert!(poll_once(&mut next).is_pending());
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut next).is_ready());
}

#[test]
fn a_completed_operation_that_nobody_looked_at_frees_its_slot() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder().max_send_wr(1));
    let mut first = a.qp.write(b"1", b.remote(0, 1));
    let mut second = a.qp.write(b"2", b.remote(0, 1));
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending(), "it waits for the slot");
    fabric.run_for(STEP).unwrap();
    drop(first);
    assert!(poll_once(&mut second).is_pending(), "it is posted");
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut second).is_ready());
    assert_eq!(b.region.read_vec(0, 1).unwrap(), b"2");
}

#[test]
fn a_future_that_leaves_the_queue_for_a_slot_passes_its_turn_on() {
    let fabric = Fabric::manual(1);
    let (a, b) = simulated(&fabric, builder().max_send_wr(1));
    let mut writes: Vec<_> =
        (0..4u8).map(|nr| a.qp.write(a.share(0, 1), b.remote(nr.into(), 1))).collect();
    a.region.write(0, b"x").unwrap();
    for write in &mut writes {
        assert!(poll_once(write).is_pending());
    }
    let [mut first, granted, waiting, mut last]: [_; 4] = writes.try_into().unwrap();
    fabric.run_for(STEP).unwrap();
    drop(waiting);
    assert!(poll_once(&mut first).is_ready(), "the slot is granted to the next future");
    assert!(poll_once(&mut last).is_pending());
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(pin!(&mut last).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(granted);
    assert_eq!(*count.0.lock().unwrap(), 1, "the turn goes to the last future");
    assert!(poll_once(&mut last).is_pending(), "it is posted");
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut last).is_ready());
    assert_eq!(b.region.read_vec(0, 4).unwrap(), b"x\0\0x");
}

/// Nobody advances the time for the packets of a dropped future but the task that waits for them.
#[test]
fn a_task_of_a_quiet_network_goes_on_after_the_request_of_a_dropped_future() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder());
    let mut turns = 0;
    let mut tasks = Tasks::default();
    tasks.spawn(async { assert_eq!(b.qp.recv().await.unwrap().to_vec(), b"hello") });
    tasks.spawn(std::future::poll_fn(|cx| {
        turns += 1;
        // The other task has found the network quiet, and sleeps.
        if turns == 50 {
            assert!(poll_once(&mut a.qp.send(b"hello")).is_pending());
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
    tasks.run(&mut Rng::new(1));
}

/// A request that no future posted wakes a task that has found the network quiet.
#[test]
fn a_task_of_a_quiet_network_goes_on_after_the_request_of_a_plain_queue_pair() {
    let fabric = Fabric::new(1);
    let [a, b] = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap());
    let (plain, qp) = (End::on(a), builder().create(&b.alloc_pd().unwrap()).unwrap());
    plain.qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    qp.connect(&plain.qp.endpoint(), &ConnectOptions::default()).unwrap();
    let mut turns = 0;
    let mut tasks = Tasks::default();
    tasks.spawn(async { assert_eq!(qp.recv().await.unwrap().to_vec(), b"hello") });
    tasks.spawn(std::future::poll_fn(|cx| {
        turns += 1;
        if turns == 50 {
            plain.post(SendRequest::send(Data::inline(b"hello")));
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
    tasks.run(&mut Rng::new(1));
}

#[test]
fn a_dropped_receive_returns_its_waker_and_loses_no_message() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated(&fabric, builder());
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    for _ in 0..100 {
        assert!(pin!(b.qp.recv()).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // One reference is here, and one in the waker of the test.
    assert_eq!(Arc::strong_count(&count), 2);
    let mut first = Box::pin(b.qp.recv());
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for nr in 0..2 {
        let _ = pollster::block_on(a.qp.send(&[nr])).unwrap();
    }
    assert!(*count.0.lock().unwrap() > 0, "a message was granted to it");
    drop(first);
    for nr in 0..2 {
        assert_eq!(pollster::block_on(b.qp.recv()).unwrap().to_vec(), [nr]);
    }
}
