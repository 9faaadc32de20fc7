//! Virtual time: the calls that advance it, and the results of waits.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use urxe::sim::{Fabric, PausedPackets};
use urxe::*;

use crate::common::{End, connected, failure, simulated_pair};

#[test]
fn a_wait_ends_at_its_virtual_deadline_or_says_that_nothing_will_come() {
    let fabric = Fabric::new(1);
    let (a, b) = simulated_pair(&fabric);
    let started = Instant::now();
    assert_eq!(a.cq.wait_one(Some(Duration::from_secs(3600))), Err(WaitError::TimedOut));
    assert_eq!(fabric.now().as_ns(), 3600 * 1_000_000_000);
    assert!(started.elapsed() < Duration::from_secs(60), "an hour passed in no time");
    assert_eq!(a.cq.wait_one(None), Err(WaitError::Quiet));
    assert_eq!(b.device.events().wait(None), Err(WaitError::Quiet));
    assert_eq!(a.cq.poll_one(), Ok(None));
}

#[test]
fn an_unplugged_peer_ends_in_retry_exceeded_not_before_its_time() {
    let fabric = Fabric::new(2);
    let (a, b) = simulated_pair(&fabric);
    fabric.pause(&b.device, PausedPackets::Drop, Duration::from_secs(1000)).unwrap();
    let before = fabric.now();
    a.qp.post_send(&SendRequest::write(a.slice(..8), b.region.remote()).wr_id(4)).unwrap();
    let failed = failure(&a.cq);
    assert_eq!((failed.wr_id, failed.status), (4, WcStatus::RetryExcErr));
    // (retry_cnt + 1) times the timeout of 4.096 µs · 2^14.
    let passed = fabric.now() - before;
    assert!(passed >= Duration::from_nanos(8 * (4096 << 14)), "{passed:?}");
    assert!(passed < Duration::from_secs(10), "{passed:?}");
    assert_eq!(a.qp.state(), QpState::Err);
}

#[test]
fn a_polling_program_runs_unchanged() {
    let fabric = Fabric::new(3);
    let (a, b) = simulated_pair(&fabric);
    for round in 0..50 {
        b.post_recv(b.slice(..64), round);
        a.qp.post_send(&SendRequest::send(a.slice(..64))).unwrap();
        let got = std::iter::repeat_with(|| b.cq.poll_one().unwrap()).take(1000).flatten().next();
        assert_eq!(got.unwrap().wr_id, round);
    }
}

#[test]
fn in_manual_time_only_the_fabric_moves() {
    let fabric = Fabric::manual(4);
    let (a, b) = simulated_pair(&fabric);
    a.post(SendRequest::write(a.slice(..8), b.region.remote()));
    for _ in 0..1000 {
        assert_eq!(a.cq.poll_one(), Ok(None));
    }
    assert_eq!(a.cq.wait_one(Some(Duration::from_millis(5))), Err(WaitError::TimedOut));
    assert_eq!(fabric.now(), sim::Time::ZERO);
    // The link takes 10 µs in each direction.
    fabric.run_for(Duration::from_micros(15)).unwrap();
    assert_eq!(a.cq.poll_one(), Ok(None));
    fabric.run_for(Duration::from_micros(15)).unwrap();
    assert_eq!(a.cq.poll_one().unwrap().unwrap().status, WcStatus::Success);
    assert_eq!(fabric.now().as_ns(), 30_000);
}

#[test]
fn in_manual_time_a_sleeper_is_woken_by_the_thread_that_runs_the_fabric() {
    let fabric = Fabric::manual(5);
    let (a, b) = simulated_pair(&fabric);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| b.cq.wait_one(Some(Duration::from_secs(60))));
        b.post_recv(b.slice(..8), 3);
        a.qp.post_send(&SendRequest::send(a.slice(..8))).unwrap();
        let done =
            fabric.run_while(Duration::from_secs(1), || b.cq.is_empty() && !waiting.is_finished());
        assert_eq!(done, Ok(true));
        assert_eq!(waiting.join().unwrap().unwrap().wr_id, 3);
    });
}

#[test]
fn channels_advance_the_time_as_well() {
    let fabric = Fabric::new(6);
    let (a, b) = simulated_pair(&fabric);
    let channel = a.device.create_channel().unwrap();
    let cq = channel.create_cq(8).unwrap();
    let (qp, _peer) = connected((&a.pd, &cq), (&b.pd, &b.cq));
    assert_eq!(channel.wait(None), Err(WaitError::Quiet));
    assert!(!cq.arm(ArmKind::Next));
    qp.post_send(&SendRequest::write(a.slice(..8), b.region.remote()).signaled()).unwrap();
    assert_eq!(channel.wait(None).unwrap().cq, cq.id());
    assert_eq!(cq.poll_one().unwrap().unwrap().status, WcStatus::Success);
    assert_eq!(cq.wait_one(None), Err(WaitError::HasChannel));
}

async fn serve(end: &End, rounds: u64) {
    for round in 0..rounds {
        end.post_recv(end.slice(..64), 0);
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Recv);
        assert_eq!(end.region.load_u64(0).unwrap(), round);
        end.post(SendRequest::send(end.slice(..64)));
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Send);
    }
}

async fn ask(end: &End, rounds: u64) {
    for round in 0..rounds {
        end.post_recv(end.slice(64..128), 0);
        end.region.store_u64(0, round).unwrap();
        end.qp.post_send(&SendRequest::send(end.slice(..64))).unwrap();
        assert_eq!(end.cq.next().await.unwrap().opcode, WcOpcode::Recv);
        assert_eq!(end.region.load_u64(64).unwrap(), round);
    }
}

fn both(seed: u64) -> (u64, u64) {
    let fabric = Fabric::new(seed);
    let (a, b) = simulated_pair(&fabric);
    let executor = smol::LocalExecutor::new();
    smol::future::block_on(executor.run(async {
        let server = executor.spawn(serve(&b, 30));
        ask(&a, 30).await;
        server.await;
    }));
    (fabric.now().as_ns(), fabric.trace_hash())
}

#[test]
fn two_tasks_of_one_thread_play_ping_pong_the_same_way_every_time() {
    assert_eq!(both(7), both(7));
}

/// A value that waits when its thread ends.
struct WaitsAtEnd(CompletionQueue);

impl Drop for WaitsAtEnd {
    fn drop(&mut self) {
        assert_eq!(self.0.wait_one(Some(Duration::from_millis(1))), Err(WaitError::TimedOut));
    }
}

thread_local! {
    static AT_END: RefCell<Option<WaitsAtEnd>> = const { RefCell::new(None) };
}

/// A panic would end the process: thread-local values are dropped by a function that cannot unwind.
#[test]
fn a_thread_that_ends_may_wait() {
    let cq = Fabric::manual(1).device([10, 0, 0, 1]).unwrap().create_cq(4).unwrap();
    let ends = std::thread::spawn(move || {
        // Values of a thread are dropped in the reverse order of their first use.
        AT_END.set(None);
        assert_eq!(cq.wait_one(Some(Duration::from_millis(1))), Err(WaitError::TimedOut));
        AT_END.set(Some(WaitsAtEnd(cq)));
    });
    ends.join().unwrap();
}
