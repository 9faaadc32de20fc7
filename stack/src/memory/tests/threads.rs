//! Several threads at one region.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn deregistering_waits_for_a_pin() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(4096).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    let released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 4096).unwrap();
        let waiter = scope.spawn(|| {
            memory.deregister(mr.lkey).unwrap();
            assert!(released.load(Ordering::Acquire), "deregistered under a pin");
        });
        // New pins fail as soon as the key is unpublished, while the old one goes on.
        let start = Instant::now();
        while memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 1).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(20), "the key is never unpublished");
            std::thread::yield_now();
        }
        assert!(memory.deregister(mr.lkey).is_err(), "only one may deregister");
        assert_eq!(memory.count_in(PD), 1, "its protection domain is still in use");
        std::thread::sleep(Duration::from_millis(5));
        pin.write(mr.iova, &[1; 4096]).unwrap();
        assert!(!waiter.is_finished());
        released.store(true, Ordering::Release);
        drop(pin);
        waiter.join().unwrap();
    });
    assert_eq!(memory.count_in(PD), 0);
}

#[test]
fn no_write_lands_after_deregistration() {
    let memory = Memory::new(1, 64);
    let buffer = Buffer::new(4096).unwrap();
    let iova = buffer.addr().addr() as u64;
    let stop = AtomicBool::new(false);
    let key = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let key = key.load(Ordering::Relaxed);
                if let Ok(pin) = memory.pin(key, PD, Access::REMOTE_WRITE, iova, 4096) {
                    pin.write(iova, &[0xff; 4096]).unwrap();
                    written += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            written
        });
        let start = Instant::now();
        for round in 0.. {
            let mr = register(&memory, PD, &buffer, ALL);
            key.store(mr.rkey.0, Ordering::Relaxed);
            if round % 4 == 0 {
                std::thread::yield_now();
            }
            memory.deregister(mr.lkey).unwrap();
            buffer.write(0, &[0; 4096]).unwrap();
            std::thread::yield_now();
            let mut seen = [0xa5; 4096];
            buffer.read(0, &mut seen).unwrap();
            assert_eq!(seen, [0; 4096], "a stale key wrote in round {round}");
            if round >= 200 && start.elapsed() > Duration::from_millis(300) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0, "the writer never got in");
    });
}

#[test]
fn a_poller_that_sees_the_last_byte_sees_all_bytes() {
    for guarded in [false, true] {
        for size in [2, 3, 5, 8, 9, 15, 64, 100, 255, 1024, 1025, 4096, 65_536] {
            poll_last_byte(size, guarded);
        }
    }
}

/// One thread places messages, another polls their last byte and then looks at the whole.
fn poll_last_byte(size: usize, guarded: bool) {
    const ROUNDS: u8 = 100;
    let memory = Memory::new(1, 16);
    // Misaligned on purpose, so that no size is a single store by accident.
    let buffer = Buffer::new(size + 3).unwrap();
    let access = if guarded { ALL | Access::ON_DEMAND } else { ALL };
    let mr = register(&memory, PD, &buffer, access);
    let at = mr.iova + 3;
    let taken = std::sync::atomic::AtomicU8::new(0);
    let deadline = Instant::now() + Duration::from_secs(20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, at, size as u64).unwrap();
                pin.write(at, &vec![round; size]).unwrap();
                drop(pin);
                while taken.load(Ordering::Acquire) != round {
                    assert!(Instant::now() < deadline, "the poller is gone");
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = vec![0; size];
        for round in 1..=ROUNDS {
            let mut polls = 0_u32;
            while buffer.load_u8(3 + size - 1) != Ok(round) {
                polls += 1;
                // Mostly without giving up the processor: the window to hit is a copy in progress.
                if polls.is_multiple_of(1000) {
                    assert!(Instant::now() < deadline, "round {round} of {size} bytes never arrived");
                    std::thread::yield_now();
                }
            }
            buffer.read(3, &mut seen).unwrap();
            assert!(seen.iter().all(|byte| *byte == round), "round {round} of {size} bytes came torn");
            taken.store(round, Ordering::Release);
        }
    });
}

#[test]
fn aligned_words_are_never_torn() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(64).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 64).unwrap();
            for round in 0..200_000_u32 {
                pin.write(mr.iova + 8, &[round as u8; 8]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_READ, mr.iova, 64).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let word = buffer.load_u64(8).unwrap().to_ne_bytes();
            assert_eq!(word, [word[0]; 8]);
            let mut word = [0; 8];
            pin.read(mr.iova + 8, &mut word).unwrap();
            assert_eq!(word, [word[0]; 8]);
        }
    });
}

#[test]
fn atomics_of_peers_and_program_count_exactly_once() {
    const EACH: u64 = 20_000;
    for access in [ALL, ALL | Access::ON_DEMAND] {
        let memory = Memory::new(1, 16);
        let buffer = Buffer::new(4096).unwrap();
        let mr = register(&memory, PD, &buffer, access);
        let each = if access.contains(Access::ON_DEMAND) { EACH / 10 } else { EACH };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..each {
                        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_ATOMIC, mr.iova, 8).unwrap();
                        pin.fetch_add(mr.iova, 3).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_ATOMIC, mr.iova, 8).unwrap();
                let mut guess = 0;
                for _ in 0..each {
                    loop {
                        let before = pin.compare_swap(mr.iova, guess, guess.wrapping_add(1 << 40)).unwrap();
                        let done = before == guess;
                        guess = before;
                        if done {
                            break;
                        }
                    }
                }
            });
            for _ in 0..each {
                buffer.fetch_add_u64(0, 1 << 60).unwrap();
            }
        });
        let expected = (each << 60).wrapping_add(each << 40).wrapping_add(6 * each);
        assert_eq!(buffer.load_u64(0), Ok(expected), "{access:?}");
    }
}
