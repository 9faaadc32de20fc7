//! Regions that are dropped while requests use them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use urxe::*;

use crate::common::{ALL, SIZE, failure, pair, status};

#[test]
fn a_dropped_region_ends_its_users_with_an_error() {
    let (a, b) = pair(30);
    let gone = b.pd.allocate(4096, ALL).unwrap();
    let there = gone.remote();
    let _ = a.perform(SendRequest::write(a.slice(..8), there));
    drop(gone);
    a.qp.post_send(&SendRequest::write(a.slice(..8), there)).unwrap();
    assert_eq!(failure(&a.cq).status, WcStatus::RemAccessErr);
    assert_eq!(a.qp.state(), QpState::Err);

    let (a, b) = pair(31);
    let gone = b.pd.allocate(4096, ALL).unwrap();
    b.post_recv(gone.slice(..).unwrap(), 5);
    drop(gone);
    a.qp.post_send(&SendRequest::send(a.slice(..8))).unwrap();
    let failed = failure(&b.cq);
    assert_eq!((failed.wr_id, failed.status), (5, WcStatus::LocProtErr));
}

/// A peer writes to the regions while they are dropped. An access after the unmapping would end the
/// process.
#[test]
fn regions_are_dropped_under_a_running_write() {
    for round in 0..20 {
        let (a, b) = pair(100 + round);
        let target = b.pd.allocate(SIZE, ALL).unwrap();
        for _ in 0..4 {
            a.post(SendRequest::write(a.slice(..), target.remote()));
        }
        std::thread::sleep(std::time::Duration::from_micros(u64::from(round) * 50));
        drop(target);
        let statuses: Vec<_> = (0..4).map(|_| status(&a.cq)).collect();
        let allowed = [WcStatus::Success, WcStatus::RemAccessErr, WcStatus::WrFlushErr];
        assert!(statuses.iter().all(|status| allowed.contains(status)), "{statuses:?}");
        assert!(
            statuses.is_sorted_by_key(|status| allowed.iter().position(|other| other == status))
        );
    }
}

#[cfg(feature = "sim")]
#[test]
fn everything_can_be_dropped_in_any_order() {
    // All 120 orders of five handles.
    fn orders(left: Vec<usize>, taken: Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.is_empty() {
            all.push(taken);
            return;
        }
        for &next in &left {
            let rest = left.iter().copied().filter(|other| *other != next).collect();
            orders(rest, [taken.clone(), vec![next]].concat(), all);
        }
    }
    let mut all = Vec::new();
    orders((0..5).collect(), Vec::new(), &mut all);
    assert_eq!(all.len(), 120);
    let fabric = sim::Fabric::new(1);
    for (nr, order) in all.iter().enumerate() {
        let device = fabric.device([10, 0, 1, nr as u8]).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(4).unwrap();
        let region = pd.allocate(4096, ALL).unwrap();
        let qp = pd.queue_pair(&cq).create().unwrap();
        qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
        qp.post_recv(&RecvRequest::new(region.slice(..).unwrap())).unwrap();
        qp.post_send(&SendRequest::send(region.slice(..8).unwrap()).signaled()).unwrap();
        let mut handles: Vec<Option<Box<dyn std::any::Any>>> = vec![
            Some(Box::new(device)),
            Some(Box::new(pd)),
            Some(Box::new(cq)),
            Some(Box::new(region)),
            Some(Box::new(qp)),
        ];
        for &index in order {
            handles[index] = None;
            fabric.run_for(std::time::Duration::from_micros(5)).unwrap();
        }
    }
}

#[test]
fn memory_of_the_program_can_be_registered() {
    let (a, b) = pair(32);
    let words: Vec<AtomicU64> = (0..512).map(AtomicU64::new).collect();
    let addr = NonNull::new(words.as_ptr().cast_mut().cast::<u8>()).unwrap();
    // SAFETY: the words are atomics, which any thread may write, and outlive the region.
    let region = unsafe { b.pd.register(addr, 4096, addr.as_ptr() as u64, ALL) }.unwrap();
    assert_eq!(region.remote().addr, addr.as_ptr() as u64);
    let there = region.remote().slice(80..88).unwrap();
    let _ = a.perform(SendRequest::fetch_add(a.slice(..8), there, 5));
    assert_eq!(words[10].load(Ordering::Acquire), 15);
    b.post_recv(region.slice(..16).unwrap(), 0);
    a.post(SendRequest::send(Data::inline(&[1; 16])));
    let _ = b.complete();
    assert_eq!(words[1].load(Ordering::Acquire), 0x0101_0101_0101_0101);
    drop(region);
    drop(words);
}

#[test]
fn dropping_a_foreign_region_unbinds_its_windows() {
    let (a, b) = pair(34);
    let words: Vec<AtomicU64> = (0..512).map(AtomicU64::new).collect();
    let addr = NonNull::new(words.as_ptr().cast_mut().cast::<u8>()).unwrap();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    // SAFETY: the words are atomics, which any thread may write, and outlive the region.
    let region = unsafe { b.pd.register(addr, 4096, addr.as_ptr() as u64, access) }.unwrap();
    let mut window = b.pd.alloc_window().unwrap();
    let bind = SendRequest::bind(&mut window, region.slice(..64).unwrap(), Access::REMOTE_WRITE);
    let _ = b.perform(bind);
    let there = window.remote().unwrap();
    let write = || SendRequest::write(Data::inline(&[1; 8]), there).signaled();
    a.qp.post_send(&write()).unwrap();
    let _ = a.complete();
    drop(region);
    a.qp.post_send(&write()).unwrap();
    assert_eq!(failure(&a.cq).status, WcStatus::RemAccessErr);
    drop(words);
}

/// After reading the new last byte of a WRITE, the reader must read all its other bytes.
#[test]
fn the_last_byte_of_a_write_is_visible_after_the_others() {
    let (a, b) = pair(33);
    const LEN: usize = 8192;
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            loop {
                // This is read first, so that the last check of the memory follows the last WRITE.
                let stopping = stop.load(Ordering::Acquire);
                let last = b.region.load_u8(LEN - 1).unwrap();
                if last == seen {
                    if stopping {
                        break;
                    }
                    std::thread::yield_now();
                    continue;
                }
                let bytes = b.bytes(0, LEN);
                // Later WRITEs may be in progress or complete, but no byte may be older.
                assert!(bytes.iter().all(|byte| *byte >= last), "after {last}");
                seen = last;
            }
            seen
        });
        for round in 1..=200_u8 {
            a.region.write(0, &[round; LEN]).unwrap();
            let write = SendRequest::write(a.slice(..LEN), b.region.remote());
            let _ = a.perform(write);
        }
        stop.store(true, Ordering::Release);
        assert_eq!(reader.join().unwrap(), 200);
    });
}
