//! Fixtures: two connected ends, over UDP or in a simulated network.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::time::Duration;

#[cfg(feature = "sim")]
use urxe::sim::Fabric;
use urxe::*;

pub const SIZE: usize = 1 << 20;
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);
pub const LONG: Option<Duration> = Some(Duration::from_secs(30));

pub struct End {
    pub device: Device,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
    pub region: MemoryRegion,
}

impl End {
    pub fn new(address: impl Into<Ipv4Addr>) -> Self {
        Self::on(Device::open_address(address.into()).unwrap())
    }

    /// Returns an end on a device that the test opened.
    pub fn on(device: Device) -> Self {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(256).unwrap();
        let qp = pd.queue_pair(&cq).create().unwrap();
        let region = pd.allocate(SIZE, ALL).unwrap();
        Self { device, pd, cq, qp, region }
    }

    pub fn slice(&self, range: impl RangeBounds<usize>) -> RegionSlice<'_> {
        self.region.slice(range).unwrap()
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.region.read_vec(offset, len).unwrap()
    }

    pub fn post_recv<'a>(&self, into: impl Into<Gather<'a>>, wr_id: u64) {
        self.qp.post_recv(&RecvRequest::new(into).wr_id(wr_id)).unwrap();
    }

    /// Posts a signaled request.
    pub fn post(&self, request: SendRequest<'_>) {
        self.qp.post_send(&request.signaled()).unwrap();
    }

    /// Waits for one completion, which must be a success.
    pub fn complete(&self) -> Completion {
        success(&self.cq)
    }

    /// Posts a request and waits for its success.
    pub fn perform(&self, request: SendRequest<'_>) -> Completion {
        self.post(request);
        self.complete()
    }

    /// Posts a request and returns the status of its completion.
    pub fn status(&self, request: SendRequest<'_>) -> WcStatus {
        self.post(request);
        status(&self.cq)
    }
}

/// Asserts that the message of an error has this part.
pub fn says(error: &impl Display, part: &str) {
    assert!(error.to_string().contains(part), "{error}");
}

/// Returns a datagram queue pair in RTS with this Q_Key.
pub fn datagram_qp(pd: &ProtectionDomain, cq: &CompletionQueue, qkey: QKey) -> QueuePair {
    let qp = pd.queue_pair(cq).qp_type(QpType::Ud).create().unwrap();
    qp.start_datagrams(qkey).unwrap();
    qp
}

/// Counts the calls of a waker.
#[derive(Default)]
pub struct WakeCount(pub Mutex<u32>);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

/// Waits for one completion, which must be a success.
pub fn success(cq: &CompletionQueue) -> Completion {
    cq.wait_one(LONG).unwrap()
}

/// Waits for one completion, which must be a failure.
pub fn failure(cq: &CompletionQueue) -> WcError {
    match cq.wait_one(LONG) {
        Err(WaitError::Failed(error)) => error,
        other => panic!("expected a failure, not {other:?}"),
    }
}

/// Waits for one completion and returns its status.
pub fn status(cq: &CompletionQueue) -> WcStatus {
    match cq.wait_one(LONG) {
        Ok(completion) => completion.status,
        Err(WaitError::Failed(error)) => error.status,
        Err(error) => panic!("{error}"),
    }
}

pub fn connect(a: &QueuePair, b: &QueuePair) {
    a.connect(&b.endpoint(), &ConnectOptions::default()).unwrap();
    b.connect(&a.endpoint(), &ConnectOptions::default()).unwrap();
}

/// Returns two more connected queue pairs with these protection domains and completion queues.
pub fn connected(
    (a_pd, a_cq): (&ProtectionDomain, &CompletionQueue),
    (b_pd, b_cq): (&ProtectionDomain, &CompletionQueue),
) -> (QueuePair, QueuePair) {
    let a = a_pd.queue_pair(a_cq).create().unwrap();
    let b = b_pd.queue_pair(b_cq).create().unwrap();
    connect(&a, &b);
    (a, b)
}

/// Returns two connected ends on these devices.
pub fn pair_on(devices: [Device; 2]) -> (End, End) {
    let [a, b] = devices.map(End::on);
    connect(&a.qp, &b.qp);
    (a, b)
}

/// Returns two connected ends on the addresses 127.48.`net`.1 and .2. Each test has its own number,
/// so that tests can run at the same time.
pub fn pair(net: u8) -> (End, End) {
    pair_on([1, 2].map(|host| Device::open_address([127, 48, net, host]).unwrap()))
}

/// Returns two connected ends of a simulated network.
#[cfg(feature = "sim")]
pub fn simulated_pair(fabric: &Fabric) -> (End, End) {
    pair_on([1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap()))
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 253) as u8 ^ (i as u8).wrapping_mul(31) ^ seed).collect()
}
