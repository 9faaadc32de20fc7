//! A slice of a region does not lend its memory, either.
use urxe::RegionSlice;

fn shared<'a>(slice: &RegionSlice<'a>) -> &'a [u8] {
    slice.as_ref()
}

fn main() {}
