//! Any packet that can be constructed: `urxe_fuzz::round_trip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::round_trip::run(bytes));
