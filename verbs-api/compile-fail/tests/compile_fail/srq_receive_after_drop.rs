//! A receive request of a shared receive queue cannot name a dropped region.
use urxe::{MemoryRegion, RecvRequest, SharedReceiveQueue};

fn post(srq: &SharedReceiveQueue, region: MemoryRegion) {
    let request = RecvRequest::new(region.slice(..64).unwrap());
    drop(region);
    srq.post_recv(&request).unwrap();
}

fn main() {}
