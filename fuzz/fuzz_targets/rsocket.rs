//! An rsocket with any peer: `urxe_fuzz::rsocket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::rsocket::run(bytes));
