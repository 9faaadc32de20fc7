//! A region's memory cannot be taken out while it is registered.
use urxe::MemoryRegion;

fn take(region: MemoryRegion) {
    let MemoryRegion { buffer, .. } = region;
    drop(buffer);
}

fn main() {}
