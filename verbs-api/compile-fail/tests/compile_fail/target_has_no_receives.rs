//! An XRC target has no receive queue: receives are posted to the shared receive queues of its
//! domain.
use urxe::{MemoryRegion, RecvRequest, XrcTarget};

fn post(target: &XrcTarget, region: &MemoryRegion) {
    target.post_recv(&RecvRequest::new(region.slice(..64).unwrap())).unwrap();
}

fn main() {}
