//! Two connected ends.

use std::net::Ipv4Addr;
use std::time::Duration;

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
    pub fn new(address: Ipv4Addr) -> Self {
        Self::on(Device::open_address(address).unwrap())
    }

    /// On a device that the test has opened.
    pub fn on(device: Device) -> Self {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(256).unwrap();
        let qp = pd.queue_pair(&cq).create().unwrap();
        let region = pd.allocate(SIZE, ALL).unwrap();
        Self { device, pd, cq, qp, region }
    }

    /// Waits for one completion, which must be a success.
    pub fn complete(&self) -> Completion {
        let completion = self.cq.wait_one(LONG).unwrap();
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        completion
    }
}

/// Two connected ends on the addresses 127.48.`net`.1 and .2: one number a test, so that tests run
/// side by side.
pub fn pair(net: u8) -> (End, End) {
    let (a, b) =
        (End::new(Ipv4Addr::new(127, 48, net, 1)), End::new(Ipv4Addr::new(127, 48, net, 2)));
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default()).unwrap();
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default()).unwrap();
    (a, b)
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 253) as u8 ^ (i as u8).wrapping_mul(31) ^ seed).collect()
}
