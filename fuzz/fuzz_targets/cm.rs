//! A connection manager with any peer and program: `urxe_fuzz::cm`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::cm::run(bytes));
