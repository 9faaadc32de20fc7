//! A send request cannot name a dropped region.
use urxe::{MemoryRegion, QueuePair, SendRequest};

fn post(qp: &QueuePair, region: MemoryRegion) {
    let request = SendRequest::send(region.slice(..64).unwrap());
    drop(region);
    qp.post_send(&request).unwrap();
}

fn main() {}
