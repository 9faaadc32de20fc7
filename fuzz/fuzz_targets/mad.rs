//! Any bytes as a MAD of communication management: `urxe_fuzz::mad`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::mad::run(bytes));
