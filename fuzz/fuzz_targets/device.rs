//! A device with live queue pairs and any peer: `urxe_fuzz::device`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::device::run(bytes));
