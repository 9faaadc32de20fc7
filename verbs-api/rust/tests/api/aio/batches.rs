//! Operations that are posted together.

use std::sync::Arc;
use std::time::Duration;

use urxe::aio::{Operation, OperationError};
use urxe::sim::{Fabric, Rng};
use urxe::*;

use super::{AsyncEnd, Tasks, builder, over_udp, poll_once, simulated};

/// Returns WRITEs of `count` blocks of 8 bytes, the first at `start` of both memories.
fn writes<'a>(
    a: &'a AsyncEnd,
    b: &AsyncEnd,
    start: usize,
    count: usize,
) -> impl Iterator<Item = Operation<'a>> {
    let to = b.region.remote().slice(start as u64..).unwrap();
    (0..count).map(move |nr| {
        let remote = to.slice(nr as u64 * 8..nr as u64 * 8 + 8).unwrap();
        a.qp.write(a.share(start + nr * 8, 8), remote)
    })
}

fn fill(a: &AsyncEnd, start: usize, count: usize, salt: u64) {
    for nr in 0..count {
        a.region.store_u64(start + nr * 8, salt << 32 | nr as u64).unwrap();
    }
}

fn check(b: &AsyncEnd, start: usize, count: usize, salt: u64) {
    for nr in 0..count {
        assert_eq!(b.region.load_u64(start + nr * 8).unwrap(), salt << 32 | nr as u64);
    }
}

#[test]
fn a_batch_may_be_longer_than_the_send_queue() {
    for slots in [1, 3, 16, 64] {
        let fabric = Fabric::new(slots.into());
        let (a, b) = simulated(&fabric, builder().max_send_wr(slots));
        for count in [0, 1, 15, 16, 17, 50, 200] {
            fill(&a, 0, count, count as u64);
            pollster::block_on(a.qp.batch(writes(&a, &b, 0, count))).unwrap();
            check(&b, 0, count, count as u64);
        }
    }
}

#[test]
fn all_kinds_of_operations_keep_their_order() {
    let fabric = Fabric::new(2);
    let (a, b) = simulated(&fabric, builder());
    b.region.write(100, b"from afar").unwrap();
    let operations = [
        a.qp.send(b"first"),
        a.qp.write(b"second", b.remote(0, 6)),
        a.qp.read(a.share(200, 9), b.remote(100, 9)),
        a.qp.atomic_write(b.remote(64, 8), 77),
        a.qp.write_imm(b"", b.remote(0, 0), 5).fenced(),
    ];
    pollster::block_on(a.qp.batch(operations)).unwrap();
    assert_eq!(a.region.read_vec(200, 9).unwrap(), b"from afar");
    assert_eq!(b.region.read_vec(0, 6).unwrap(), b"second");
    assert_eq!(b.region.load_u64(64).unwrap(), 77);
    assert_eq!(pollster::block_on(b.qp.recv()).unwrap().to_vec(), b"first");
    assert_eq!(pollster::block_on(b.qp.recv()).unwrap().imm_data(), Some(5));
}

#[test]
fn atomic_operations_without_their_former_values_are_a_batch() {
    let fabric = Fabric::new(12);
    let (a, b) = simulated(&fabric, builder().max_send_wr(8));
    let adds = (0..30).map(|nr| a.qp.fetch_add(b.remote(nr % 3 * 8, 8), nr));
    pollster::block_on(a.qp.batch(adds)).unwrap();
    let sums = [0, 8, 16].map(|at| b.region.load_u64(at).unwrap());
    assert_eq!(sums, [135, 145, 155]);
    // Together with other operations.
    let swap = a.qp.compare_swap(b.remote(0, 8), 135, 1);
    let operations = [a.qp.write(b"\x05", b.remote(8, 1)), swap.into()];
    pollster::block_on(a.qp.batch(operations)).unwrap();
    assert_eq!(b.region.load_u64(0).unwrap(), 1);
}

#[test]
fn the_first_failure_ends_the_batch() {
    for slots in [1, 4, 64] {
        let fabric = Fabric::new(3);
        let (a, b) = simulated(&fabric, builder().max_send_wr(slots));
        let forbidden = Remote { addr: 0, rkey: Rkey(0) };
        let mut operations: Vec<_> = writes(&a, &b, 0, 20).collect();
        fill(&a, 0, 20, 9);
        operations[10] = a.qp.write(b"no", forbidden);
        let error = pollster::block_on(a.qp.batch(operations)).unwrap_err();
        let OperationError::Failed(failed) = error else { panic!("{error}") };
        assert_eq!((failed.status, failed.opcode), (WcStatus::RemAccessErr, WcOpcode::RdmaWrite));
        check(&b, 0, 10, 9);
        assert_eq!(b.region.load_u64(88).unwrap(), 0, "a later WRITE is not executed");
        // The queue pair is in the error state, and says so.
        let error = pollster::block_on(a.qp.batch(writes(&a, &b, 0, 3))).unwrap_err();
        let OperationError::Failed(failed) = error else { panic!("{error}") };
        assert_eq!(failed.status, WcStatus::WrFlushErr);
    }
}

#[test]
fn a_request_that_is_not_accepted_ends_the_batch_after_the_posted_ones() {
    let fabric = Fabric::new(4);
    let (a, b) = simulated(&fabric, builder().max_send_wr(8));
    let other = fabric.device([10, 0, 0, 9]).unwrap().alloc_pd().unwrap();
    let foreign = Arc::new(other.allocate(64, Access::LOCAL_WRITE).unwrap());
    for (salt, place) in (1..).zip([0, 5, 17]) {
        fill(&a, 0, 20, salt);
        let mut operations: Vec<_> = writes(&a, &b, 0, 20).collect();
        operations[place] = a.qp.send(foreign.share(..8).unwrap());
        let error = pollster::block_on(a.qp.batch(operations)).unwrap_err();
        let OperationError::Post(PostError::MemoryOfOtherDevice { .. }) = error else {
            panic!("{error}")
        };
        check(&b, 0, place, salt);
        // The slots of requests that were not posted are free.
        pollster::block_on(a.qp.batch(writes(&a, &b, 0, 20))).unwrap();
        check(&b, 0, 20, salt);
    }
}

#[test]
fn operations_of_another_queue_pair_are_refused() {
    let fabric = Fabric::manual(5);
    let (a, b) = simulated(&fabric, builder());
    let foreign = a.qp.batch([a.qp.send(b"own"), b.qp.send(b"foreign")]);
    assert_eq!(pollster::block_on(foreign).unwrap_err(), OperationError::NotOfBatch);
    assert_eq!(fabric.counters().sent, 0, "nothing is posted");
    let mut polled = a.qp.send(b"polled");
    assert!(poll_once(&mut polled).is_pending());
    let error = pollster::block_on(a.qp.batch([polled])).unwrap_err();
    assert_eq!(error, OperationError::NotOfBatch);
    assert!(error.to_string().contains("do not poll them"), "{error}");
}

#[test]
fn a_dropped_batch_keeps_the_memory_of_posted_operations_and_frees_its_slots() {
    const STEP: Duration = Duration::from_millis(10);
    let fabric = Fabric::manual(6);
    let (a, b) = simulated(&fabric, builder().max_send_wr(4));
    fill(&a, 0, 10, 3);
    let mut batch = a.qp.batch(writes(&a, &b, 0, 10));
    assert!(poll_once(&mut batch).is_pending());
    let mut waits = a.qp.batch(writes(&a, &b, 512, 2));
    assert!(poll_once(&mut waits).is_pending(), "no slot is free");
    drop((batch, waits));
    let AsyncEnd { qp, region } = a;
    let memory = Arc::downgrade(&region);
    drop(region);
    assert!(memory.upgrade().is_some(), "four requests are outstanding");
    fabric.run_for(STEP).unwrap();
    assert!(memory.upgrade().is_none());
    check(&b, 0, 4, 3);
    assert_eq!(b.region.load_u64(32).unwrap(), 0, "the others were never posted");
    let region = Arc::new(qp.pd().allocate(4096, Access::LOCAL_WRITE).unwrap());
    let a = AsyncEnd { qp, region };
    fill(&a, 0, 10, 4);
    let mut next = a.qp.batch(writes(&a, &b, 0, 10));
    while poll_once(&mut next).is_pending() {
        fabric.run_for(STEP).unwrap();
    }
    check(&b, 0, 10, 4);
}

#[test]
fn a_dropped_batch_leaves_the_queue_for_a_slot() {
    const STEP: Duration = Duration::from_millis(10);
    let fabric = Fabric::manual(7);
    let (a, b) = simulated(&fabric, builder().max_send_wr(1));
    let mut first = a.qp.write(b"1", b.remote(0, 1));
    assert!(poll_once(&mut first).is_pending());
    let mut waits = a.qp.batch(writes(&a, &b, 512, 2));
    assert!(poll_once(&mut waits).is_pending());
    drop(waits);
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut first).is_ready());
    let mut next = a.qp.write(b"2", b.remote(0, 1));
    assert!(poll_once(&mut next).is_pending());
    fabric.run_for(STEP).unwrap();
    assert!(poll_once(&mut next).is_ready(), "the only slot was free");
}

/// A task of its own part of the memory: batches, and single operations between them.
async fn work(a: &AsyncEnd, b: &AsyncEnd, nr: usize) {
    let start = nr * 1024;
    for round in 0..5 {
        let count = 1 + (nr * 7 + round * 11) % 40;
        fill(a, start, count, round as u64);
        a.qp.batch(writes(a, b, start, count)).await.unwrap();
        check(b, start, count, round as u64);
        let counter = b.remote(start as u64 + 1000, 8);
        assert_eq!(a.qp.fetch_add(counter, 1).await.unwrap(), round as u64);
    }
}

#[test]
fn batches_of_many_tasks_share_a_queue() {
    for seed in 0..40 {
        let fabric = Fabric::new(seed);
        let (a, b) = simulated(&fabric, builder().max_send_wr(1 + seed as u32 % 9));
        let mut tasks = Tasks::default();
        for nr in 0..6 {
            tasks.spawn(work(&a, &b, nr));
        }
        println!("seed {seed}");
        tasks.run(&mut Rng::new(seed));
    }
}

#[test]
fn batches_over_sockets() {
    let (a, b) = over_udp(129, builder().max_send_wr(32));
    std::thread::scope(|threads| {
        for nr in 0..3 {
            let (a, b) = (&a, &b);
            threads.spawn(move || {
                for _ in 0..10 {
                    b.region.store_u64(nr * 1024 + 1000, 0).unwrap();
                    pollster::block_on(work(a, b, nr));
                }
            });
        }
    });
}
