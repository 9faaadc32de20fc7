//! Awaitable queue pairs: in simulated networks, over UDP, and with `rdma_cm`.

mod batches;
#[cfg(feature = "cm")]
mod connections;
mod dropping;
mod interleaving;
mod states;
mod udp;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use urxe::aio::*;
use urxe::sim::{Fabric, Rng};
use urxe::*;

use crate::common::ALL;

/// One end, and memory for operations.
pub struct AsyncEnd {
    pub qp: AsyncQueuePair,
    pub region: Arc<MemoryRegion>,
}

impl AsyncEnd {
    fn new(device: &Device, builder: AsyncQueuePairBuilder) -> Self {
        let pd = device.alloc_pd().unwrap();
        let qp = builder.create(&pd).unwrap();
        Self { qp, region: Arc::new(pd.allocate(1 << 16, ALL).unwrap()) }
    }

    /// Returns a slice of the own memory.
    pub fn share(&self, start: usize, len: usize) -> SharedSlice {
        self.region.share(start..start + len).unwrap()
    }

    /// Returns a part of the memory, for the peer.
    pub fn remote(&self, start: u64, len: u64) -> RemoteRegion {
        self.region.remote().slice(start..start + len).unwrap()
    }
}

pub fn builder() -> AsyncQueuePairBuilder {
    AsyncQueuePair::builder()
}

/// Returns two connected ends on these devices.
pub fn pair_on(devices: [Device; 2], builder: AsyncQueuePairBuilder) -> (AsyncEnd, AsyncEnd) {
    let [a, b] = devices.map(|device| AsyncEnd::new(&device, builder.clone()));
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default()).unwrap();
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default()).unwrap();
    (a, b)
}

pub fn simulated(fabric: &Fabric, builder: AsyncQueuePairBuilder) -> (AsyncEnd, AsyncEnd) {
    pair_on([1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap()), builder)
}

/// Returns two ends over UDP whose packets pass sockets. Each test has its own number.
pub fn over_udp(net: u8, builder: AsyncQueuePairBuilder) -> (AsyncEnd, AsyncEnd) {
    let open = |host| Device::builder().direct(false).open_address([127, 48, net, host]).unwrap();
    pair_on([1, 2].map(open), builder)
}

/// Polls a future once, with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Task<'a> = (Pin<Box<dyn Future<Output = ()> + 'a>>, Arc<Flag>);

/// An executor of one thread that polls the woken tasks in a random order, which follows from a
/// seed. A lost wake-up makes it fail.
#[derive(Default)]
pub struct Tasks<'a>(Vec<Task<'a>>);

impl<'a> Tasks<'a> {
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'a) {
        self.0.push((Box::pin(task), Arc::new(Flag(AtomicBool::new(true)))));
    }

    pub fn run(mut self, rng: &mut Rng) {
        while !self.0.is_empty() {
            let woken: Vec<usize> =
                (0..self.0.len()).filter(|nr| self.0[*nr].1.0.load(Ordering::Relaxed)).collect();
            assert!(!woken.is_empty(), "{} tasks sleep, and nothing wakes them", self.0.len());
            let nr = woken[rng.below(woken.len() as u64) as usize];
            let (task, flag) = &mut self.0[nr];
            flag.0.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(flag));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(self.0.swap_remove(nr));
            }
        }
    }
}

/// Polls `future` up to `polls` times, and drops it then.
pub async fn for_polls<F: Future + Unpin>(mut future: F, polls: u64) -> Option<F::Output> {
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let found = Pin::new(&mut future).poll(cx).map(Some);
        if left == 0 && found.is_pending() {
            return Poll::Ready(None);
        }
        found
    })
    .await
}
