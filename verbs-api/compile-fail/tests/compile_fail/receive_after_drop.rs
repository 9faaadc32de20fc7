//! A receive request cannot name a dropped region.
use urxe::{MemoryRegion, QueuePair, RecvRequest};

fn post(qp: &QueuePair, region: MemoryRegion) {
    let request = RecvRequest::new(region.slice(..64).unwrap());
    drop(region);
    qp.post_recv(&request).unwrap();
}

fn main() {}
