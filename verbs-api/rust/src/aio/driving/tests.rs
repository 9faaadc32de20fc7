//! Tests of the future that polls for all others. When it stops, another future goes on, or the
//! background thread receives at once.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::*;
use crate::aio::AsyncQueuePair;
use crate::backend::Backend;
use crate::{ConnectOptions, Device};

/// Longer than a test.
const LONG: Duration = Duration::from_secs(100);

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a queue pair over UDP.
fn queue_pair(host: u8, busy_poll: Duration) -> AsyncQueuePair {
    let device = Device::builder().direct(false).open_address([127, 49, 13, host]).unwrap();
    let pd = device.alloc_pd().unwrap();
    AsyncQueuePair::builder().busy_poll(busy_poll).create(&pd).unwrap()
}

/// Receives, as a future that polls does. The background thread leaves the sockets alone then.
fn receive(qp: &AsyncQueuePair) {
    qp.device().inner.backend.progress();
    assert!(is_left_to_polls(qp));
}

fn is_left_to_polls(qp: &AsyncQueuePair) -> bool {
    match &qp.device().inner.backend {
        Backend::Udp(engine) => engine.expects_poll(),
        Backend::Simulated(_) => panic!("the device is one over UDP"),
    }
}

fn stop_polling(qp: &AsyncQueuePair) {
    qp.device().inner.backend.stop_polling();
    assert!(!is_left_to_polls(qp));
}

/// Polls a future, which must not be ready. Returns how often it woke its task.
fn pends(future: impl Future) -> u32 {
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(pin!(future).poll(&mut Context::from_waker(&waker)).is_pending());
    count.0.load(Ordering::Relaxed)
}

#[test]
fn a_future_whose_time_is_over_leaves_the_sockets_to_the_background_thread() {
    let qp = queue_pair(1, Duration::ZERO);
    let mut waits = qp.recv();
    assert_eq!(pends(&mut waits), 1, "it claims to poll");
    receive(&qp);
    assert_eq!(pends(&mut waits), 0, "it sleeps");
    assert!(!is_left_to_polls(&qp));
}

#[test]
fn a_future_that_polls_is_polled_again() {
    let qp = queue_pair(2, LONG);
    let mut waits = qp.recv();
    for _ in 0..10 {
        stop_polling(&qp);
        assert_eq!(pends(&mut waits), 1);
    }
    assert!(is_left_to_polls(&qp), "it receives");
}

/// Another future may poll, although the first one is not dropped yet.
#[test]
fn a_future_that_has_ended_lets_another_poll() {
    let (qp, peer) = (queue_pair(6, LONG), queue_pair(7, LONG));
    qp.connect(&peer.endpoint(), &ConnectOptions::default()).unwrap();
    peer.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    let other_polls = || pends(qp.recv()) == 1;
    let mut send = qp.send(b"text");
    pollster::block_on(&mut send).unwrap();
    assert!(other_polls());
    let mut batch = qp.batch([qp.send(b"text")]);
    pollster::block_on(&mut batch).unwrap();
    assert!(other_polls());
    let mut receive = peer.recv();
    let _received = pollster::block_on(&mut receive).unwrap();
    let _received = pollster::block_on(&mut receive).unwrap();
    assert_eq!(pends(peer.recv()), 1);
    drop((send, batch));
}

#[test]
fn a_dropped_batch_lets_another_future_poll() {
    let (qp, peer) = (queue_pair(8, LONG), queue_pair(9, LONG));
    let options = ConnectOptions::default().timeout(Duration::from_secs(8));
    qp.connect(&peer.endpoint(), &options).unwrap();
    let mut batch = qp.batch([qp.send(b"text")]);
    assert_eq!(pends(&mut batch), 1);
    receive(&qp);
    drop(batch);
    assert!(!is_left_to_polls(&qp), "none of its operations polls");
    assert_eq!(pends(qp.recv()), 1, "it claims to poll");
}

/// No event comes for a completion that was there before the queue was armed.
#[cfg(feature = "sim")]
#[test]
fn a_future_looks_again_after_it_armed_the_queue() {
    let fabric = crate::sim::Fabric::manual(1);
    let [qp, peer] = [1, 2].map(|host| {
        let device = fabric.device([10, 0, 0, host]).unwrap();
        AsyncQueuePair::builder().create(&device.alloc_pd().unwrap()).unwrap()
    });
    qp.connect(&peer.endpoint(), &ConnectOptions::default()).unwrap();
    peer.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    let mut send = qp.send(b"text");
    assert_eq!(pends(&mut send), 0);
    fabric.run_for(Duration::from_millis(1)).unwrap();
    let (waker, mut ticket) = (Waker::noop(), None);
    let look = || peer.inner.take_message(&mut ticket, waker);
    let mut driving = Driving::default();
    assert!(driving.pend(&peer.inner, &Context::from_waker(waker), look).is_ready());
}

/// The other future polls next, so the background thread is not needed.
#[test]
fn a_dropped_future_that_polled_wakes_another() {
    let qp = queue_pair(3, LONG);
    let (mut polls, mut sleeps) = (Box::pin(qp.recv()), Box::pin(qp.recv()));
    assert_eq!(pends(&mut polls), 1);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(sleeps.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    receive(&qp);
    drop(polls);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(is_left_to_polls(&qp));
    assert_eq!(pends(&mut sleeps), 1, "it claims to poll");
    drop(sleeps);
    assert!(is_left_to_polls(&qp), "no future waits for a completion");
}

/// The peer never answers, so the request of the dropped future stays outstanding.
#[test]
fn a_dropped_future_with_a_request_leaves_the_sockets_to_the_background_thread() {
    let (qp, peer) = (queue_pair(4, LONG), queue_pair(5, LONG));
    let options = ConnectOptions::default().timeout(Duration::from_secs(8));
    qp.connect(&peer.endpoint(), &options).unwrap();
    let mut send = qp.send(b"text");
    assert_eq!(pends(&mut send), 1);
    receive(&qp);
    drop(send);
    assert!(!is_left_to_polls(&qp));
}
