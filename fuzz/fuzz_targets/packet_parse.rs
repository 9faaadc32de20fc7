//! Any bytes as a packet and as a frame: `urxe_fuzz::parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::parse::run(bytes));
