//! Processes that share an address: `urxe_fuzz::rendezvous`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::rendezvous::run(bytes));
