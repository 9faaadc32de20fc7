//! Counts the allocations of the hot path, and fails if there are any: `cargo bench -p urxe-stack
//! --bench allocations`.
//!
//! A first round of messages makes the allocations that are made once (runs, rings, timers). The
//! counted round must need no more.

mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use self::pair::Pair;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are the same.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are the same.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MESSAGES: u64 = 1000;

fn counted(mut message: impl FnMut()) -> u64 {
    for _ in 0..MESSAGES {
        message();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..MESSAGES {
        message();
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn main() {
    let mut pair = Pair::new();
    let control = counted(|| drop(black_box(Box::new(1u64))));
    assert_eq!(control, MESSAGES, "the counter counts");
    let mut total = 0;
    for (name, count) in [
        ("SEND of 64 B", counted(|| pair.send(64))),
        ("WRITE of 60 KiB", counted(|| pair.write(60 << 10))),
        ("READ of 64 KiB", counted(|| pair.read(64 << 10))),
    ] {
        println!(
            "{name}: {count} allocations in {MESSAGES} messages, {:.3} each",
            count as f64 / MESSAGES as f64
        );
        total += count;
    }
    assert_eq!(total, 0, "the hot path allocates");
}
