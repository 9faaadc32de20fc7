//! Tasks of several executors and threads over UDP.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use urxe::aio::{AsyncQueuePair, OperationError};
use urxe::*;

use super::{AsyncEnd, builder, over_udp, poll_once};

/// Sends from one task and receives in another, on one queue pair.
async fn ping(qp: AsyncQueuePair, rounds: u32) {
    for round in 0..rounds {
        let _ = qp.send_imm(b"ping", round).await.unwrap();
        let answer = qp.recv().await.unwrap();
        assert_eq!((answer.to_vec(), answer.imm_data()), (b"pong".to_vec(), Some(round)));
    }
}

async fn pong(qp: AsyncQueuePair, rounds: u32) {
    for _ in 0..rounds {
        let asked = qp.recv().await.unwrap().imm_data().unwrap();
        let _ = qp.send_imm(b"pong", asked).await.unwrap();
    }
}

#[test]
fn pollster() {
    for (net, busy_poll) in [(120, Duration::ZERO), (121, Duration::from_micros(20))] {
        let (a, b) = over_udp(net, builder().busy_poll(busy_poll));
        let server = std::thread::spawn(|| pollster::block_on(pong(b.qp, 100)));
        pollster::block_on(ping(a.qp, 100));
        server.join().unwrap();
    }
}

#[test]
fn tokio() {
    let (a, b) = over_udp(122, builder().max_send_wr(2));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = tokio::spawn(pong(b.qp, 100));
        tokio::time::timeout(Duration::from_secs(60), ping(a.qp, 100)).await.unwrap();
        server.await.unwrap();
    });
}

#[test]
fn smol() {
    let (a, b) = over_udp(123, builder());
    smol::block_on(async {
        let server = smol::spawn(pong(b.qp, 100));
        ping(a.qp, 100).await;
        server.await;
    });
}

/// Each thread writes its own numbers and adds to its own counter.
fn count(a: &AsyncEnd, b: &AsyncEnd, nr: u64) {
    pollster::block_on(async {
        for round in 0..200 {
            let number = (nr << 32 | round).to_ne_bytes();
            let written = a.qp.write(&number, b.remote(nr * 64, 8)).await.unwrap();
            assert_eq!(written.opcode, WcOpcode::RdmaWrite);
            assert_eq!(b.region.load_u64(nr as usize * 64).unwrap(), nr << 32 | round);
            assert_eq!(a.qp.fetch_add(b.remote(nr * 64 + 8, 8), 1).await.unwrap(), round);
        }
    });
}

#[test]
fn threads_share_a_queue_pair_and_each_gets_its_own_completions() {
    let (a, b) = over_udp(124, builder().max_send_wr(3));
    std::thread::scope(|threads| {
        for nr in 0..4 {
            let (a, b) = (&a, &b);
            threads.spawn(move || count(a, b, nr));
        }
    });
}

/// The first future polls for the queue pair. It is kept, and its task does not poll it again.
#[test]
fn a_future_that_is_not_polled_again_stops_no_other() {
    let (a, b) = over_udp(125, builder());
    let mut kept = a.qp.recv();
    assert!(poll_once(&mut kept).is_pending());
    let start = Instant::now();
    count(&a, &b, 1);
    drop(kept);
    let mut kept = a.qp.write(b"kept", b.remote(0, 4));
    let first = poll_once(&mut kept);
    count(&a, &b, 2);
    // The acknowledgement may arrive during the first poll.
    let written = match first {
        Poll::Ready(written) => written,
        Poll::Pending => pollster::block_on(kept),
    };
    assert_eq!(written.unwrap().opcode, WcOpcode::RdmaWrite);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A future that polled for all others is dropped while another task sleeps.
#[test]
fn a_dropped_future_leaves_nobody_asleep() {
    let (a, b) = over_udp(126, builder());
    for round in 0..50u32 {
        std::thread::scope(|threads| {
            let mut polls = a.qp.recv();
            assert!(poll_once(&mut polls).is_pending());
            let sleeps = threads.spawn(|| pollster::block_on(a.qp.recv()).unwrap().imm_data());
            if round % 2 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(polls);
            let _ = pollster::block_on(b.qp.send_imm(b"", round)).unwrap();
            assert_eq!(sleeps.join().unwrap(), Some(round));
        });
    }
}

#[test]
fn an_unreliable_connection() {
    let (a, b) = over_udp(127, builder().unreliable());
    let _ = pollster::block_on(a.qp.write(b"text", b.remote(0, 4))).unwrap();
    let _ = pollster::block_on(a.qp.send(b"done")).unwrap();
    assert_eq!(pollster::block_on(b.qp.recv()).unwrap().to_vec(), b"done");
    assert_eq!(b.region.read_vec(0, 4).unwrap(), b"text");
    // The service has no READs.
    let read = pollster::block_on(a.qp.read(a.share(0, 4), b.remote(0, 4)));
    assert!(matches!(read, Err(OperationError::Post(_))), "{read:?}");
}

/// The handles go while an operation is outstanding, and the thread that receives holds the last
/// one for a moment.
#[test]
fn the_last_handle_may_be_dropped_at_any_time() {
    let (a, b) = over_udp(128, builder());
    let region = Arc::clone(&a.region);
    for _ in 0..50 {
        let (c, d) = super::pair_on([a.qp.device().clone(), b.qp.device().clone()], builder());
        let mut write = c.qp.write(b"last", b.remote(0, 4));
        let _ = Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop()));
        drop(write);
        drop((c, d));
    }
    assert_eq!(Arc::strong_count(&region), 2);
    count(&a, &b, 0);
}
