//! A fast-registration region cannot be mapped while a slice of the former mapping exists.
use urxe::{FastRegion, MemoryRegion, SendRequest};

fn move_on(region: &mut FastRegion, next: &MemoryRegion) {
    let part = region.slice(..64).unwrap();
    region.map(next, 0..4096, 0).unwrap();
    let _ = SendRequest::send(part);
}

fn main() {}
