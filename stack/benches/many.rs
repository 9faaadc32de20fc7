//! Many queue pairs without all that carries their packets: what each costs in memory and time, and what a thousand of them move against one over the
//! same memory. `cargo bench -p urxe-stack --bench many`; fails above the limits that it prints.
//!
//! The ratios are told, not judged: what a program sees of them tells `cargo bench -p urxe --bench many`. Here fifty WRITEs of one queue pair
//! are acknowledged by one or two packets, and those of fifty by fifty.

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
const LENGTHS: [u32; 3] = [1024, 4096, 16_384];
/// Of one length, so that all take about as long.
const SWEPT_BYTES: usize = 60 << 20;
/// WRITEs that are posted at a time.
const BATCH: usize = 50;
const MIN_ROUNDS: usize = 6;

const MAX_BYTES_EACH: usize = 8 << 10;
const MAX_CREATION: Duration = Duration::from_secs(5);

/// Writes the whole working set once; how long that took.
fn sweep(pair: &mut Pair, length: u32, qp_of: impl Fn(usize) -> QpHandle) -> Duration {
    let start = Instant::now();
    for first in (0..ACTIVE).step_by(BATCH) {
        for part in first..first + BATCH {
            pair.post_write(qp_of(part), part as u64 * u64::from(length), length);
        }
        pair.finish(BATCH, 0);
    }
    start.elapsed()
}

/// What many queue pairs move of what one does in the sweep right before; prints the middle of all rounds, since a machine that others use is
/// not as fast in each, and the best rate of either.
fn compare(pair: &mut Pair, length: u32, one: QpHandle, handles: &[[QpHandle; 2]]) {
    let bytes = ACTIVE * length as usize;
    let (mut alone, mut together, mut ratios) = (Duration::MAX, Duration::MAX, Vec::new());
    for _ in 0..(SWEPT_BYTES / bytes).max(MIN_ROUNDS) {
        let times = [sweep(pair, length, |_| one), sweep(pair, length, |part| handles[part][0])];
        ratios.push(times[0].as_secs_f64() / times[1].as_secs_f64());
        (alone, together) = (alone.min(times[0]), together.min(times[1]));
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let rate = |time: Duration| bytes as f64 * 8.0 / time.as_secs_f64() / 1e9;
    println!(
        "WRITEs of {length} B over {} KiB: one queue pair {:.2} Gbit/s, {ACTIVE} queue pairs {:.2} Gbit/s, ratio {ratio:.3}",
        bytes >> 10,
        rate(alone),
        rate(together)
    );
}

fn main() {
    let mut pair = Pair::with_buffers(ACTIVE * LENGTHS[2] as usize);
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
    for length in LENGTHS {
        compare(&mut pair, length, one, &handles);
    }
    assert!(each < MAX_BYTES_EACH, "more than {MAX_BYTES_EACH} bytes each");
    // A time judges nothing by itself on a machine that others use: it is told, not asserted.
    let holds = if creation < MAX_CREATION { "holds" } else { "does not hold" };
    println!("created in less than {MAX_CREATION:?}: {holds}");
}
