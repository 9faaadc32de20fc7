//! Two connected devices of a fabric.

use urxe::sim::Fabric;
use urxe::*;

pub const SIZE: usize = 1 << 20;
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

pub struct End {
    pub device: Device,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
    pub region: MemoryRegion,
}

impl End {
    pub fn new(fabric: &Fabric, address: [u8; 4]) -> Self {
        let device = fabric.device(address).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(256).unwrap();
        let qp = pd.queue_pair(&cq).create().unwrap();
        let region = pd.allocate(SIZE, ALL).unwrap();
        Self { device, cq, qp, region }
    }

    /// Waits in virtual time for one completion, which must be a success.
    pub fn complete(&self) -> Completion {
        let completion = self.cq.wait_one(None).unwrap();
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        completion
    }
}

pub fn pair(fabric: &Fabric) -> (End, End) {
    let (a, b) = (End::new(fabric, [10, 0, 0, 1]), End::new(fabric, [10, 0, 0, 2]));
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default()).unwrap();
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default()).unwrap();
    (a, b)
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 253) as u8 ^ (i as u8).wrapping_mul(31) ^ seed).collect()
}
