//! A region has one owner. Dropping the owner deregisters the region.
use urxe::MemoryRegion;

fn twice(region: &MemoryRegion) -> MemoryRegion {
    MemoryRegion::clone(region)
}

fn main() {}
