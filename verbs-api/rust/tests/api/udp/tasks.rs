//! Waiting in tasks of several executors.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use urxe::*;

use crate::common::{End, LONG, WakeCount, pair};

async fn ping(end: End, rounds: u64) {
    for round in 0..rounds {
        end.post_recv(end.slice(64..128), 0);
        end.region.store_u64(0, round).unwrap();
        end.qp.post_send(&SendRequest::send(end.slice(..64))).unwrap();
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Recv);
        assert_eq!(end.region.load_u64(64).unwrap(), round);
    }
}

async fn pong(end: End, rounds: u64) {
    for _ in 0..rounds {
        end.post_recv(end.slice(..64), 0);
        assert_eq!(end.cq.next().await.unwrap().status, WcStatus::Success);
        end.post(SendRequest::send(end.slice(..64)));
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Send);
    }
}

#[test]
fn pollster() {
    let (a, b) = pair(20);
    let server = std::thread::spawn(|| pollster::block_on(pong(b, 100)));
    pollster::block_on(ping(a, 100));
    server.join().unwrap();
}

#[test]
fn tokio() {
    let (a, b) = pair(21);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = tokio::spawn(pong(b, 100));
        tokio::time::timeout(Duration::from_secs(60), ping(a, 100)).await.unwrap();
        server.await.unwrap();
    });
}

#[test]
fn smol() {
    let (a, b) = pair(22);
    smol::block_on(async {
        let server = smol::spawn(pong(b, 100));
        ping(a, 100).await;
        server.await;
    });
}

#[test]
fn a_dropped_future_loses_no_completion() {
    let (a, b) = pair(23);
    let nobody = Waker::noop();
    // So many, because the wake-up of few rounds depends on the last look of a thread that sleeps.
    for round in 0..2000 {
        let mut first = Box::pin(b.cq.next());
        assert!(first.as_mut().poll(&mut Context::from_waker(nobody)).is_pending());
        b.post_recv(b.slice(..8), round);
        a.qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
        drop(first);
        assert_eq!(pollster::block_on(b.cq.next()).unwrap().wr_id, round);
    }
}

#[test]
fn several_tasks_share_one_queue_and_each_completion_goes_to_one() {
    let (a, b) = pair(24);
    const EACH: usize = 50;
    std::thread::scope(|threads| {
        let take = || {
            let next = || pollster::block_on(b.cq.next()).unwrap().wr_id;
            std::iter::repeat_with(next).take(EACH).collect::<Vec<_>>()
        };
        let takers = [threads.spawn(take), threads.spawn(take), threads.spawn(take)];
        for wr_id in 0..3 * EACH as u64 {
            b.post_recv(Gather::EMPTY, wr_id);
            let _ = a.perform(SendRequest::send(Data::EMPTY));
        }
        let mut taken: Vec<u64> =
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..3 * EACH as u64));
    });
}

/// An executor whose waker polls the task at once, on the waking thread, and drops the task when it
/// is done.
struct Inline {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    woken_again: AtomicBool,
}

impl Inline {
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        loop {
            let Ok(mut task) = self.task.try_lock() else {
                return self.woken_again.store(true, Ordering::SeqCst);
            };
            let Some(mut future) = task.take() else { return };
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(()) => return,
                Poll::Pending => *task = Some(future),
            }
            drop(task);
            if !self.woken_again.swap(false, Ordering::SeqCst) {
                return;
            }
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

/// The task owns all objects, so its end closes the device on the background thread of the device.
#[test]
fn a_waker_may_poll_at_once_and_close_the_device() {
    let (a, b) = pair(25);
    let (tell, told) = mpsc::channel();
    let address = match b.device.gid(0).unwrap().to_ip() {
        std::net::IpAddr::V4(address) => address,
        other => panic!("{other}"),
    };
    b.post_recv(b.slice(..8), 6);
    let task = async move {
        let End { device, pd, cq, qp, region } = b;
        let completion = cq.next().await.unwrap();
        drop((device, pd, qp, region, cq));
        tell.send((completion.wr_id, std::thread::current().name().map(str::to_owned))).unwrap();
    };
    let inline = Arc::new(Inline {
        task: Mutex::new(Some(Box::pin(task))),
        woken_again: AtomicBool::new(false),
    });
    inline.run();
    a.qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    let (wr_id, thread) = told.recv_timeout(LONG.unwrap()).unwrap();
    assert_eq!((wr_id, thread.as_deref()), (6, Some("urxe-rxe0")));
    // The thread ends soon, and its sockets are closed with it.
    let reopened = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Device::open_address(address).ok()
    });
    assert!(reopened.is_some(), "the device is closed");
}

#[test]
fn a_future_need_not_live_as_long_as_its_waker_is_known() {
    let (a, b) = pair(26);
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    for _ in 0..1000 {
        let next = pin!(b.cq.next());
        assert!(next.poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // Each dropped future dropped its waker: one reference is here, and one in the waker of the
    // test.
    assert_eq!(Arc::strong_count(&count), 2);
    b.post_recv(Gather::EMPTY, 0);
    a.qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    let _ = b.complete();
    assert_eq!(*count.0.lock().unwrap(), 0);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the program panics, on purpose");
    }
}

#[test]
fn a_panicking_waker_does_not_affect_other_waiters() {
    let (a, b) = pair(27);
    let waker = Waker::from(Arc::new(Panics));
    let mut bad = pin!(b.cq.next());
    b.post_recv(Gather::EMPTY, 1);
    b.post_recv(Gather::EMPTY, 2);
    std::thread::scope(|threads| {
        assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let waiting = threads.spawn(|| b.cq.wait_one(LONG));
        // Both wait, and the background thread of b wakes both.
        std::thread::sleep(Duration::from_millis(50));
        a.post(SendRequest::send(Data::EMPTY));
        assert_eq!(waiting.join().unwrap().unwrap().wr_id, 1);
        let _ = a.complete();
        a.post(SendRequest::send(Data::EMPTY));
        assert_eq!(b.cq.wait_one(LONG).unwrap().wr_id, 2);
        let _ = a.complete();
    });
}
