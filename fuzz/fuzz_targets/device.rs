//! Any peer of a device with live queue pairs. Judged by `urxe_fuzz::device`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| urxe_fuzz::device::run(bytes));
