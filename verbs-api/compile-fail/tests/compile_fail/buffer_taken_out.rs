//! A region's memory cannot be taken out while it is registered.
use urxe::MemoryRegion;

fn take(region: MemoryRegion) {
    let MemoryRegion { registration, .. } = region;
    drop(registration);
}

fn main() {}
