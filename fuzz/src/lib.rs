//! How we try to break urxe: what the fuzz targets do, as ordinary functions of bytes.
//!
//! | target | input | what must hold |
//! |---|---|---|
//! | [`parse`] | any bytes | no panic; what parses is emitted again as the same bytes |
//! | [`round_trip`] | any packet that can be constructed | emitting and parsing gives it back |
//! | [`mad`] | any bytes as MADs | no panic; what parses is emitted again with reserved bits zero |
//! | [`cm`] | any peer, program and clock of a connection manager | no panic; limits hold; answers go to who asked; nothing is left |
//! | [`device`] | any peer, program and clock | no panic; memory without the right stays as it is; every work request completes at most once and in order; nothing stays charged |
//!
//! In `device` the ICRC is made right, so that the fuzzer gets past it.
//!
//! ```text
//! cargo +nightly fuzz run --features libfuzzer <target> -- -max_total_time=60
//! cargo test -p urxe-fuzz                              # every kept input once, any toolchain
//! cargo run -p urxe-fuzz --example seed_corpora        # packets of the captures into the corpora
//! cargo +nightly fuzz cmin --features libfuzzer <target> # after a long run, before keeping what it found
//! ```
#![deny(unsafe_code)]

pub mod cm;
pub mod device;
pub mod headers;
pub mod mad;
pub mod parse;
pub mod round_trip;
