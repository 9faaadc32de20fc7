//! Measures the throughput of a thousand queue pairs against that of one over the same memory,
//! without sockets. There is no limit. `cargo bench -p urxe-stack --bench many`
//!
//! `cargo bench -p urxe --bench many` measures the throughput of a program, and the memory and time
//! of each queue pair. Here fifty WRITEs of one queue pair are acknowledged by one or two packets,
//! and those of fifty queue pairs by fifty.

mod pair;

use std::time::{Duration, Instant};

use urxe_stack::device::QpHandle;

use self::pair::Pair;

const ACTIVE: usize = 1000;
/// Bytes of a WRITE; the working set is [`ACTIVE`] of them on each side.
const LENGTHS: [u32; 3] = [1024, 4096, 16_384];
/// Bytes of all WRITEs of one length, so that all lengths take about as long.
const SWEPT_BYTES: usize = 60 << 20;
/// WRITEs posted at a time.
const BATCH: usize = 50;
const MIN_ROUNDS: usize = 6;

/// Writes the whole working set once. Returns the time.
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

/// Measures many queue pairs and one in turn. Prints the median ratio, because a shared machine is
/// not equally fast in each round, and the best rate of each.
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
        "WRITEs of {length} B over {} KiB: one queue pair {:.2} Gbit/s, \
         {ACTIVE} queue pairs {:.2} Gbit/s, ratio {ratio:.3}",
        bytes >> 10,
        rate(alone),
        rate(together)
    );
}

fn main() {
    let mut pair = Pair::with_buffers(ACTIVE * LENGTHS[2] as usize);
    // Each has one WRITE in flight.
    let handles: Vec<[QpHandle; 2]> = (0..ACTIVE).map(|_| pair.connect_another(1)).collect();
    let [one, _] = pair.connect_another(64);
    for length in LENGTHS {
        compare(&mut pair, length, one, &handles);
    }
}
