//! A key alone is no memory: safe code cannot make a slice from an address and a key.
use std::marker::PhantomData;
use urxe::{AddressSpace, RegionSlice};

fn slice<'a>(everything: &AddressSpace, slice: RegionSlice<'a>) -> RegionSlice<'a> {
    let mut sge = slice.sge();
    sge.lkey = everything.lkey();
    RegionSlice { sge, region: PhantomData, ..slice }
}

fn main() {}
