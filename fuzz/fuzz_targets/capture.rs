//! Any bytes as a capture file: `urxe_fuzz::capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::capture::run(bytes));
