//! Measures copies by system calls that report missing memory (EFAULT), as on-demand regions use
//! them, against ordinary copies. Also measures additions to a word by a helper process against the
//! instruction. `cargo bench -p urxe-stack --bench copies`. There is no limit: the bench shows why
//! such calls are used only where they are needed.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe_stack::memory::{Access, Buffer, CopyMode, Memory, PdId};

const LEN: usize = 64 << 10;
const SIZES: [usize; 5] = [8, 64, 1024, 4096, 60 << 10];
const ROUNDS: usize = 200;
const COPIES: u32 = 50;

/// A region with one of the two ways to copy.
struct Region {
    memory: Memory,
    key: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl Region {
    fn new(mode: CopyMode) -> Self {
        let memory = Memory::with_mode(1, 8, mode);
        let buffer = Arc::new(Buffer::new(LEN).expect("memory"));
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mr =
            memory.register_buffer(PdId(1), &buffer, 0..LEN, 0, access).expect("a good region");
        Self { memory, key: mr.rkey.0, start: mr.iova, bytes: vec![7; LEN] }
    }

    /// Does the copies of a WRITE and of a READ, with a pin each. Keeps the shortest times.
    fn copies(&mut self, size: usize, best: &mut [Duration; 2]) {
        let len = size as u64;
        let start = Instant::now();
        for _ in 0..COPIES {
            let pin = self.memory.pin(self.key, PdId(1), Access::REMOTE_WRITE, self.start, len);
            pin.expect("it grants that")
                .write(self.start, black_box(&self.bytes[..size]))
                .expect("it is there");
        }
        let written = start.elapsed();
        let start = Instant::now();
        for _ in 0..COPIES {
            let pin = self.memory.pin(self.key, PdId(1), Access::REMOTE_READ, self.start, len);
            pin.expect("it grants that")
                .read(self.start, black_box(&mut self.bytes[..size]))
                .expect("it is there");
        }
        *best = [best[0].min(written), best[1].min(start.elapsed())];
    }

    /// Does atomic additions. Keeps the shortest time.
    fn additions(&self, best: &mut Duration) {
        let start = Instant::now();
        for _ in 0..COPIES {
            let pin = self.memory.pin(self.key, PdId(1), Access::REMOTE_ATOMIC, self.start, 8);
            black_box(pin.expect("it grants that").fetch_add(self.start, 1).expect("it is there"));
        }
        *best = start.elapsed().min(*best);
    }
}

fn main() {
    let mut regions = [Region::new(CopyMode::Direct), Region::new(CopyMode::Checked)];
    println!("{:>8}  {:>24}  {:>24}", "bytes", "write: plain, checked", "read: plain, checked");
    for size in SIZES {
        let mut best = [[Duration::MAX; 2]; 2];
        // Alternating, so other load on the machine affects both.
        for _ in 0..ROUNDS {
            regions.iter_mut().zip(&mut best).for_each(|(region, best)| region.copies(size, best));
        }
        let [plain, checked] = best;
        println!(
            "{size:>8}  {:>24}  {:>24}",
            column(plain[0], checked[0]),
            column(plain[1], checked[1])
        );
    }
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        regions.iter().zip(&mut best).for_each(|(region, best)| region.additions(best));
    }
    println!("fetch-and-add: plain, checked: {}", column(best[0], best[1]));
}

fn column(plain: Duration, checked: Duration) -> String {
    let ns = |time: Duration| time.as_nanos() as f64 / f64::from(COPIES);
    let (plain, checked) = (ns(plain), ns(checked));
    format!("{plain:.0} ns, {checked:.0} ns: x{:.1}", checked / plain)
}
