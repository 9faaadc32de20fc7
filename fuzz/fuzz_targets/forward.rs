//! A packet that another process forwards: `urxe_fuzz::forward`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::forward::run(bytes));
