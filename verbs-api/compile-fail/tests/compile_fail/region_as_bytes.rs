//! A region does not lend its memory as a slice, because peers may write the memory.
use urxe::MemoryRegion;

fn shared(region: &MemoryRegion) -> &[u8] {
    region.as_ref()
}

fn exclusive(region: &mut MemoryRegion) -> &mut [u8] {
    region.as_mut()
}

fn by_deref(region: &MemoryRegion) -> &[u8] {
    &**region
}

fn by_index(region: &MemoryRegion) -> u8 {
    region[0]
}

fn main() {}
