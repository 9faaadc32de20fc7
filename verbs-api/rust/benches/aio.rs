//! Compares awaitable operations with the blocking API on the same devices, as ratios of
//! alternating rounds. `cargo bench -p urxe --bench aio`
//!
//! *Blocking* is `post_send` and `CompletionQueue::wait`; *awaitable* is `AsyncQueuePair` in
//! `pollster`, which parks the thread. Both ends are devices of this process, so a row over the
//! loopback path measures the cost of the calls, and a row over sockets that of the wake-ups.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use urxe::aio::AsyncQueuePair;
use urxe::*;

const LEN: usize = 64;
/// Operations that are outstanding in a batch.
const BATCH: usize = 64;
const ROUNDS: usize = 151;
const ROUND: Duration = Duration::from_millis(10);

/// Two devices with a blocking and an awaitable pair of queue pairs.
struct Pair {
    cq: CompletionQueue,
    qp: QueuePair,
    peer_cq: CompletionQueue,
    peer: QueuePair,
    aio: AsyncQueuePair,
    peer_aio: AsyncQueuePair,
    local: Arc<MemoryRegion>,
    inbox: MemoryRegion,
    remote: MemoryRegion,
}

impl Pair {
    fn new(net: u8, direct: bool) -> Self {
        let pd = |host| {
            let address = Ipv4Addr::new(127, 49, 250 + net, host);
            let device = Device::builder().direct(direct).open_address(address);
            device.expect("a device").alloc_pd().expect("a domain")
        };
        let (a, b) = (pd(1), pd(2));
        let queues = |pd: &ProtectionDomain| {
            let cq = pd.device().create_cq(256).expect("a queue");
            let qp = pd.queue_pair(&cq).create().expect("a queue pair");
            (cq, qp, AsyncQueuePair::builder().create(pd).expect("a queue pair"))
        };
        let ((cq, qp, aio), (peer_cq, peer, peer_aio)) = (queues(&a), queues(&b));
        let options = ConnectOptions::default();
        qp.connect(&peer.endpoint(), &options).expect("connected");
        peer.connect(&qp.endpoint(), &options).expect("connected");
        aio.connect(&peer_aio.endpoint(), &options).expect("connected");
        peer_aio.connect(&aio.endpoint(), &options).expect("connected");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = |pd: &ProtectionDomain| pd.allocate(4096, rights).expect("a region");
        let (local, remote, inbox) = (Arc::new(region(&a)), region(&b), region(&b));
        Self { cq, qp, peer_cq, peer, aio, peer_aio, local, inbox, remote }
    }

    /// Returns the WRITEs a second, with a window of [`BATCH`].
    fn blocking_batches(&self) -> f64 {
        let mut done = [Completion::default(); BATCH];
        per_second(BATCH, || {
            let writes: [_; BATCH] = std::array::from_fn(|_| {
                let from = self.local.slice(..LEN).expect("inside");
                SendRequest::write(from, self.remote.remote()).signaled()
            });
            self.qp.post_send_batch(&writes).expect("room");
            let mut left = BATCH;
            while left > 0 {
                let count = self.cq.wait(&mut done, None).expect("a queue");
                assert!(done[..count].iter().all(|done| done.status == WcStatus::Success));
                left -= count;
            }
        })
    }

    fn awaitable_batches(&self) -> f64 {
        per_second(BATCH, || {
            let write = |_| {
                let from = self.local.share(..LEN).expect("inside");
                self.aio.write(from, self.remote.remote())
            };
            pollster::block_on(self.aio.batch((0..BATCH).map(write))).expect("success");
        })
    }

    /// Returns the median time of one READ after the other in nanoseconds.
    fn blocking_reads(&self) -> f64 {
        median_ns(|| {
            let into = self.local.slice(..LEN).expect("inside");
            let read = SendRequest::read(into, self.remote.remote()).signaled();
            self.qp.post_send(&read).expect("room");
            let _read = self.cq.wait_one(None).expect("success");
        })
    }

    fn awaitable_reads(&self) -> f64 {
        median_ns(|| {
            let into = self.local.share(..LEN).expect("inside");
            let read = self.aio.read(into, self.remote.remote());
            let _read = pollster::block_on(read).expect("success");
        })
    }

    /// Returns the median time of a message and its answer, between two threads.
    fn blocking_ping_pongs(&self) -> f64 {
        let receive = |qp: &QueuePair, inbox: &MemoryRegion| {
            qp.post_recv(&RecvRequest::new(inbox.slice(..LEN).expect("inside"))).expect("room");
        };
        let send = |qp: &QueuePair, wr_id| {
            let send = SendRequest::send(Data::inline(b"ping")).wr_id(wr_id);
            qp.post_send(&send).expect("room");
        };
        receive(&self.peer, &self.inbox);
        thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let asked = self.peer_cq.wait_one(None).expect("success");
                    let is_last = asked.byte_len == 0;
                    if !is_last {
                        receive(&self.peer, &self.inbox);
                    }
                    send(&self.peer, 0);
                    if is_last {
                        break;
                    }
                }
            });
            let ping = || {
                receive(&self.qp, &self.local);
                send(&self.qp, 0);
                let _answer = self.cq.wait_one(None).expect("success");
            };
            let median = median_ns(ping);
            receive(&self.qp, &self.local);
            self.qp.post_send(&SendRequest::send(Data::EMPTY)).expect("room");
            let _last = self.cq.wait_one(None).expect("success");
            // The receive of the next round is posted by that round.
            median
        })
    }

    fn awaitable_ping_pongs(&self) -> f64 {
        thread::scope(|scope| {
            scope.spawn(|| {
                pollster::block_on(async {
                    loop {
                        let is_last = self.peer_aio.recv().await.expect("success").is_empty();
                        self.peer_aio.send(b"ping").await.expect("success");
                        if is_last {
                            break;
                        }
                    }
                });
            });
            let ask = |bytes: &'static [u8]| {
                pollster::block_on(async {
                    self.aio.send(bytes).await.expect("success");
                    let _answer = self.aio.recv().await.expect("success");
                });
            };
            let median = median_ns(|| ask(b"ping"));
            ask(b"");
            median
        })
    }
}

fn per_second(each: usize, mut once: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < ROUND {
        once();
        count += each;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn median_ns(mut once: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < ROUND {
        let before = Instant::now();
        once();
        times.push(before.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    times[times.len() / 2] as f64
}

fn main() {
    type Measure = fn(&Pair) -> f64;
    let rows: [(&str, Measure, Measure); 3] = [
        ("WRITEs of 64 B a second, 64 at once", Pair::blocking_batches, Pair::awaitable_batches),
        ("ns of a READ of 64 B, p50", Pair::blocking_reads, Pair::awaitable_reads),
        ("ns of a SEND and its answer, p50", Pair::blocking_ping_pongs, Pair::awaitable_ping_pongs),
    ];
    for (path, direct) in [("loopback path", true), ("sockets", false)] {
        let pair = Pair::new(u8::from(direct), direct);
        for (what, blocking, awaitable) in rows {
            let mut figures: Vec<(f64, [f64; 2])> = (0..ROUNDS)
                .map(|_| [blocking(&pair), awaitable(&pair)])
                .map(|both| (both[1] / both[0], both))
                .collect();
            figures.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (ratio, [blocking, awaitable]) = figures[ROUNDS / 2];
            println!(
                "{path}, {what}: blocking {blocking:.0}, awaitable {awaitable:.0}, ratio {ratio:.2}"
            );
        }
    }
}
