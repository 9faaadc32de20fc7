//! Nor to those of a part of it.
use urxe::RegionSlice;

fn shared<'a>(slice: &RegionSlice<'a>) -> &'a [u8] {
    slice.as_ref()
}

fn main() {}
