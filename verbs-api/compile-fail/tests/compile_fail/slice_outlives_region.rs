//! A slice cannot outlive its region.
use urxe::{Access, ProtectionDomain, RegionSlice};

fn keep(pd: &ProtectionDomain) -> RegionSlice<'_> {
    let region = pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    region.slice(..64).unwrap()
}

fn main() {}
