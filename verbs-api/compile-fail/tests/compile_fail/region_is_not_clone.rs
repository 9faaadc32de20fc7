//! A region has one owner, whose drop deregisters it.
use urxe::MemoryRegion;

fn twice(region: &MemoryRegion) -> MemoryRegion {
    MemoryRegion::clone(region)
}

fn main() {}
