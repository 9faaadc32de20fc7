//! The life of memory keys, with a model: `urxe_fuzz::keys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::keys::run(bytes));
