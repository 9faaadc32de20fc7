//! A listing of another process: `urxe_fuzz::listing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::listing::run(bytes));
