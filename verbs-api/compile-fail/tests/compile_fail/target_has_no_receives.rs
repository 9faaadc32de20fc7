//! The receiving end of an XRC connection has no queue of its own: receives are posted to its
//! domain's shared receive queues.
use urxe::{MemoryRegion, RecvRequest, XrcTarget};

fn post(target: &XrcTarget, region: &MemoryRegion) {
    target.post_recv(&RecvRequest::new(region.slice(..64).unwrap())).unwrap();
}

fn main() {}
