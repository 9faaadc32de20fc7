//! Several threads that use one region.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than any correct run, on any machine.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Stops the other thread on drop, also when an assertion of this thread fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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
        // New pins fail as soon as the key is unpublished, while the old pin stays valid.
        let start = Instant::now();
        while memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 1).is_ok() {
            assert!(start.elapsed() < GIVE_UP, "the key is never unpublished");
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
    let key = AtomicU32::new(0);
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
        let stop_at_end = StopAtEnd(&stop);
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
        drop(stop_at_end);
        assert!(writer.join().unwrap() > 0, "the writer never got in");
    });
}

#[test]
fn a_poller_that_sees_the_last_byte_sees_all_bytes() {
    let in_order = |pin: &Pin<'_>, at: u64, message: &[u8]| pin.write(at, message).unwrap();
    for (size, limit_ms) in
        [(2, 50), (3, 50), (8, 50), (15, 50), (64, 100), (255, 100), (1025, 200), (65_536, 200)]
    {
        assert_eq!(poll_last_byte(size, ALL, limit_ms, in_order), Ok(()), "{size} bytes");
        assert_eq!(
            poll_last_byte(size, ALL | Access::ON_DEMAND, 50, in_order),
            Ok(()),
            "{size} bytes on demand"
        );
    }
    // With these sizes and times, the test detects a plain `memcpy` in every run.
    assert_eq!(poll_last_byte(4096, ALL, 1000, in_order), Ok(()));
}

/// The test above can fail: it detects a placement that begins with the last byte.
#[test]
fn a_poller_notices_a_last_byte_that_comes_first() {
    let last_first = |pin: &Pin<'_>, at: u64, message: &[u8]| {
        let body = message.len() - 1;
        pin.write(at + body as u64, &message[body..]).unwrap();
        pin.write(at, &message[..body]).unwrap();
    };
    assert!(poll_last_byte(4096, ALL, 20_000, last_first).is_err());
}

/// One thread places messages, and another polls their last byte and then reads the whole message.
/// Ends after `limit_ms` milliseconds and at least 64 messages, or with the number of the first
/// torn message.
fn poll_last_byte(
    size: usize,
    access: Access,
    limit_ms: u64,
    place: impl Fn(&Pin<'_>, u64, &[u8]) + Sync,
) -> Result<(), u32> {
    let memory = Memory::new(1, 16);
    // Misaligned, so that no size is a single store.
    let buffer = Buffer::new(size + 3).unwrap();
    let mr = register(&memory, PD, &buffer, access);
    let at = mr.iova + 3;
    // Number of messages that the polling thread has read, and whether it has ended.
    let (taken, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let start = Instant::now();
    // The loop mostly keeps the processor, because only a copy in progress shows the fault.
    let pause = |polls: &mut u32| {
        *polls += 1;
        if polls.is_multiple_of(2000) {
            std::thread::yield_now();
        }
        polls.is_multiple_of(2000)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, at, size as u64).unwrap();
            let (mut round, mut polls) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                round += 1;
                let message = vec![round as u8; size];
                place(&pin, at, &message);
                while taken.load(Ordering::Acquire) != round && !over.load(Ordering::Relaxed) {
                    pause(&mut polls);
                }
            }
        });
        let (mut seen, mut round, mut polls) = (vec![0; size], 0_u32, 0);
        let _stop = StopAtEnd(&over);
        loop {
            round += 1;
            while buffer.load_u8(3 + size - 1) != Ok(round as u8) {
                if pause(&mut polls) {
                    assert!(
                        start.elapsed() < GIVE_UP,
                        "message {round} of {size} bytes never arrived"
                    );
                }
            }
            // A copy routine may write the beginning last, so the beginning is read first.
            let first = buffer.load_u8(3);
            buffer.read(3, &mut seen).unwrap();
            if first != Ok(round as u8) || seen.iter().any(|byte| *byte != round as u8) {
                break Err(round);
            }
            taken.store(round, Ordering::Release);
            if round.is_multiple_of(64) && start.elapsed() >= Duration::from_millis(limit_ms) {
                break Ok(());
            }
        }
    })
}

#[test]
fn aligned_words_are_never_torn() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(64).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopAtEnd(&stop);
            let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 64).unwrap();
            for round in 0..200_000_u32 {
                pin.write(mr.iova + 8, &[round as u8; 8]).unwrap();
            }
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
                        let pin =
                            memory.pin(mr.rkey.0, PD, Access::REMOTE_ATOMIC, mr.iova, 8).unwrap();
                        pin.fetch_add(mr.iova, 3).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_ATOMIC, mr.iova, 8).unwrap();
                let mut guess = 0;
                for _ in 0..each {
                    loop {
                        let before =
                            pin.compare_swap(mr.iova, guess, guess.wrapping_add(1 << 40)).unwrap();
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
