//! Compares two devices of one process over the loopback path and over sockets, as ratios of
//! alternating rounds. `cargo bench -p urxe --bench direct`

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use urxe::*;

const SIZE: usize = 1 << 20;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(100);

struct End {
    _device: Device,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl End {
    fn new(address: Ipv4Addr, direct: bool) -> Self {
        let device = Device::builder().direct(direct).open_address(address).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let cq = device.create_cq(256).expect("a queue");
        let qp = pd.queue_pair(&cq).create().expect("a queue pair");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = pd.allocate(SIZE, rights).expect("a region");
        Self { _device: device, cq, qp, region }
    }

    /// Polls until a request completes.
    fn complete(&self) {
        let mut done = [Completion::default(); 16];
        while self.cq.poll(&mut done).expect("a queue") == 0 {}
        assert_eq!(done[0].status, WcStatus::Success);
    }
}

struct Pair(End, End);

impl Pair {
    fn new(net: u8, direct: bool) -> Self {
        let ends = [1, 2].map(|host| End::new(Ipv4Addr::new(127, 49, net, host), direct));
        let [a, b] = ends;
        a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default()).expect("connected");
        b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default()).expect("connected");
        Self(a, b)
    }

    /// Returns the number of WRITEs of `len` bytes per second, one after the other, by one thread.
    fn writes(&self, len: usize) -> f64 {
        let Self(a, b) = self;
        per_second(|| {
            let from = a.region.slice(..len).expect("inside");
            let write = SendRequest::write(from, b.region.remote()).signaled();
            a.qp.post_send(&write).expect("room");
            a.complete();
        })
    }

    /// Returns the number of ping-pongs with SENDs of 64 bytes per second, between two polling
    /// threads.
    fn ping_pongs(&self) -> f64 {
        let Self(a, b) = self;
        let stop = AtomicBool::new(false);
        let receive = |end: &End| {
            let into = end.region.slice(..64).expect("inside");
            end.qp.post_recv(&RecvRequest::new(into)).expect("room");
        };
        let send = |end: &End| {
            let from = end.region.slice(..64).expect("inside");
            end.qp.post_send(&SendRequest::send(from)).expect("room");
        };
        receive(b);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut done = [Completion::default(); 16];
                while !stop.load(Ordering::Relaxed) {
                    if b.cq.poll(&mut done).expect("a queue") > 0 {
                        receive(b);
                        send(b);
                    }
                }
            });
            let rate = per_second(|| {
                receive(a);
                send(a);
                a.complete();
            });
            stop.store(true, Ordering::Relaxed);
            rate
        })
    }
}

fn per_second(mut once: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0_u64;
    while start.elapsed() < ROUND {
        once();
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    type Measure = fn(&Pair) -> f64;
    let rows: [(&str, Measure); 4] = [
        ("WRITE of 64 B, one thread", |pair| pair.writes(64)),
        ("WRITE of 4 KiB, one thread", |pair| pair.writes(4096)),
        ("WRITE of 1 MiB, one thread", |pair| pair.writes(SIZE)),
        ("SEND of 64 B and back, two threads", Pair::ping_pongs),
    ];
    for (row, (what, measure)) in rows.into_iter().enumerate() {
        let net = 10 * row as u8;
        let mut figures = Vec::new();
        for round in 0..ROUNDS {
            // Each round has new devices, so earlier rounds leave no state in windows or buffers.
            let rates = [true, false].map(|direct| measure(&Pair::new(net + round as u8, direct)));
            figures.push((rates[0] / rates[1], rates));
        }
        figures.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, [direct, socket]) = figures[ROUNDS / 2];
        println!("{what}: directly {direct:.0}/s, over sockets {socket:.0}/s, ratio {ratio:.2}");
    }
}
