//! The memory of a registered region cannot be moved out of the region.
use urxe::MemoryRegion;

fn take(region: MemoryRegion) {
    let MemoryRegion { buffer, .. } = region;
    drop(buffer);
}

fn main() {}
