//! Many queue pairs: the memory and creation time of each, and the throughput of a thousand queue
//! pairs relative to one, over sockets and over the loopback path. `cargo bench -p urxe --bench
//! many`
//!
//! The ratio is the median of alternating rounds. Each queue pair needs its own acknowledgement,
//! while up to 32 packets of one queue pair share one. With short messages, this causes most of the
//! difference. `cargo bench -p urxe-stack --bench many` measures the cost without sockets.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use urxe::*;

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[allow(unsafe_code, reason = "an allocator that counts, for this bench alone")]
// SAFETY: every call is passed to the allocator of the system unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller makes the same promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller makes the same promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of pairs. Both ends are in this process.
const PAIRS: usize = 5000;
const ACTIVE: usize = 1000;
const MAX_BYTES_EACH: usize = 8 << 10;
const MAX_CREATION: Duration = Duration::from_secs(5);
const MIN_RATIO: f64 = 0.7;

/// The size of the working set on each side, in bytes.
const WORKING_SET: usize = 4 << 20;
/// The sizes of a WRITE, in bytes.
const LENGTHS: [usize; 4] = [64, 1024, 4096, 65_536];
/// The number of outstanding WRITEs.
const DEPTH: usize = ACTIVE;
/// Many short rounds, because other load of the machine varies within a second and would move the
/// median of few rounds.
const ROUNDS: usize = 81;
const ROUND: Duration = Duration::from_millis(30);

struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
    _device: Device,
}

impl End {
    fn new(address: Ipv4Addr, direct: bool) -> Self {
        let device = Device::builder().direct(direct).open_address(address).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let cq = device.create_cq(2 * DEPTH as u32).expect("a queue");
        let region =
            pd.allocate(WORKING_SET, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("a region");
        Self { pd, cq, region, _device: device }
    }

    fn queue_pair(&self, entries: u32) -> QueuePair {
        let builder = self.pd.queue_pair(&self.cq).max_send_wr(entries).max_recv_wr(1);
        builder.max_send_sge(1).max_recv_sge(1).create().expect("there are many")
    }
}

/// Two devices and the queue pairs between them.
struct Bench {
    many: Vec<[QueuePair; 2]>,
    one: [QueuePair; 2],
    ends: [End; 2],
    each: usize,
    creation: Duration,
}

impl Bench {
    fn new(net: u8, direct: bool) -> Self {
        let ends = [1, 2].map(|host| End::new(Ipv4Addr::new(127, 50, net, host), direct));
        let connected = |entries| {
            let [a, b] = [&ends[0], &ends[1]].map(|end| end.queue_pair(entries));
            a.connect(&b.endpoint(), &ConnectOptions::default()).expect("connected");
            b.connect(&a.endpoint(), &ConnectOptions::default()).expect("connected");
            [a, b]
        };
        let one = connected(DEPTH as u32);
        let (before, start) = (HELD_BYTES.load(Ordering::Relaxed), Instant::now());
        // The queues have one entry each, so the measured memory is that of the queue pairs.
        let many: Vec<_> = (0..PAIRS).map(|_| connected(1)).collect();
        let creation = start.elapsed();
        let each = (HELD_BYTES.load(Ordering::Relaxed) - before) / (2 * PAIRS);
        Self { many, one, ends, each, creation }
    }

    /// Returns the number of WRITEs of `length` per second, with `DEPTH` outstanding WRITEs that
    /// are posted one by one. Each WRITE uses the queue pair of `qps` that has been idle for the
    /// longest time. `qps` has a queue pair once for each outstanding WRITE that it may have.
    fn rate(&self, length: usize, qps: Vec<&QueuePair>) -> f64 {
        let [near, far] = &self.ends;
        let places = WORKING_SET / length;
        let post = |nr: usize, turn: usize| {
            let place = nr % places * length;
            let from = near.region.slice(place..place + length).expect("inside");
            let to = far.region.remote().slice(place as u64..).expect("inside");
            let write = SendRequest::write(from, to).wr_id(turn as u64).signaled();
            qps[turn].post_send(&write).expect("its last one was completed");
        };
        let mut free: VecDeque<usize> = (0..qps.len()).collect();
        let mut done = [Completion::default(); 32];
        let (mut posted, mut completed) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < ROUND {
            while posted < completed + DEPTH {
                post(posted, free.pop_front().expect("there are as many"));
                posted += 1;
            }
            completed += self.poll(&mut done, &mut free);
        }
        let rate = completed as f64 / start.elapsed().as_secs_f64();
        while completed < posted {
            completed += self.poll(&mut done, &mut free);
        }
        rate
    }

    fn poll(&self, done: &mut [Completion], free: &mut VecDeque<usize>) -> usize {
        let count = self.ends[0].cq.poll(done).expect("a queue");
        for one in &done[..count] {
            assert_eq!(one.status, WcStatus::Success);
            free.push_back(one.wr_id as usize);
        }
        count
    }

    /// Prints the throughput of many queue pairs relative to one.
    fn compare(&self, how: &str, length: usize) {
        let mut rounds: Vec<[f64; 2]> = (0..ROUNDS)
            .map(|_| {
                let one = self.rate(length, vec![&self.one[0]; DEPTH]);
                [one, self.rate(length, self.many[..ACTIVE].iter().map(|pair| &pair[0]).collect())]
            })
            .collect();
        let ratio = |rates: &[f64; 2]| rates[1] / rates[0];
        rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let middle = rounds[ROUNDS / 2];
        let verdict = if ratio(&middle) >= MIN_RATIO { "holds" } else { "does not hold" };
        println!(
            "{how}, WRITEs of {length} B: one queue pair {:.0}/s, \
             {ACTIVE} queue pairs {:.0}/s, ratio {:.2}: {verdict}",
            middle[0],
            middle[1],
            ratio(&middle),
        );
    }
}

fn main() {
    println!(
        "goals: at most {MAX_BYTES_EACH} bytes each, all in {MAX_CREATION:?}, \
         ratio of at least {MIN_RATIO}"
    );
    for (net, how, direct) in [(0, "over sockets", false), (1, "within the process", true)] {
        let bench = Bench::new(net, direct);
        println!(
            "{} queue pairs: {} bytes each, created and connected in {:.2?}",
            2 * PAIRS,
            bench.each,
            bench.creation
        );
        for length in LENGTHS {
            bench.compare(how, length);
        }
        // Times are printed and not asserted, because other load of the machine changes them.
        assert!(bench.each < MAX_BYTES_EACH, "more than {MAX_BYTES_EACH} bytes each");
    }
}
