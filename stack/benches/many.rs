//! Many queue pairs: what each costs in memory and time, and what a thousand of them move against one over the same memory.
//! `cargo bench -p urxe-stack --bench many`; fails above the limits that it prints.

mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use urxe_stack::device::QpHandle;

use self::pair::Pair;

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        HELD_BYTES.fetch_add(new_size, Ordering::Relaxed);
        HELD_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Both ends are in this process.
const PAIRS: usize = 5000;
const ACTIVE: usize = 1000;
/// Bytes of a WRITE; the working set is [`ACTIVE`] of them on each side.
const LENGTH: u32 = 1024;
/// WRITEs that are posted at a time.
const BATCH: usize = 50;
const ROUNDS: usize = 60;

const MAX_BYTES_EACH: usize = 8 << 10;
const MAX_CREATION: Duration = Duration::from_secs(5);
const MIN_RATIO: f64 = 0.7;

/// Writes the whole working set once; how long that took.
fn sweep(pair: &mut Pair, qp_of: impl Fn(usize) -> QpHandle) -> Duration {
    let start = Instant::now();
    for first in (0..ACTIVE).step_by(BATCH) {
        for part in first..first + BATCH {
            pair.post_write(qp_of(part), part as u64 * u64::from(LENGTH), LENGTH);
        }
        pair.finish(BATCH, 0);
    }
    start.elapsed()
}

fn main() {
    let mut pair = Pair::new();
    let (before, start) = (HELD_BYTES.load(Ordering::Relaxed), Instant::now());
    // Queues of one entry each: what remains is the queue pairs' own.
    let handles: Vec<[QpHandle; 2]> = (0..PAIRS).map(|_| pair.connect_another(1)).collect();
    let creation = start.elapsed();
    let each = (HELD_BYTES.load(Ordering::Relaxed) - before) / (2 * PAIRS);
    println!(
        "{} connected queue pairs: {each} bytes each, created and connected in {creation:.2?}",
        2 * PAIRS
    );

    let [one, _] = pair.connect_another(64);
    let (mut alone, mut together) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        alone = alone.min(sweep(&mut pair, |_| one));
        together = together.min(sweep(&mut pair, |part| handles[part][0]));
    }
    let rate = |time: Duration| (ACTIVE * LENGTH as usize) as f64 * 8.0 / time.as_secs_f64() / 1e9;
    let ratio = alone.as_secs_f64() / together.as_secs_f64();
    println!(
        "WRITEs of {LENGTH} B over {} KiB: one queue pair {:.2} Gbit/s, {ACTIVE} queue pairs {:.2} Gbit/s, ratio {ratio:.2}",
        (ACTIVE * LENGTH as usize) >> 10,
        rate(alone),
        rate(together)
    );
    assert!(each < MAX_BYTES_EACH, "more than {MAX_BYTES_EACH} bytes each");
    // Times judge nothing by themselves on a machine that others use: they are told, not asserted.
    let holds = |holds: bool| if holds { "holds" } else { "does not hold" };
    println!("created in less than {MAX_CREATION:?}: {}", holds(creation < MAX_CREATION));
    println!("at least {MIN_RATIO} of what one moves: {}", holds(ratio >= MIN_RATIO));
}
