//! The fuzz targets of urxe, as ordinary functions of bytes.
//!
//! | target | input | properties |
//! |---|---|---|
//! | [`parse`] | any bytes | no panic; parsed packets are emitted again as the same bytes |
//! | [`round_trip`] | any packet that can be constructed | emitting and parsing returns the packet |
//! | [`mad`] | any bytes as MADs | no panic; parsed MADs are emitted again with reserved bits zero |
//! | [`cm`] | any peer, program and clock of a connection manager | no panic; limits hold; replies go to the sender; nothing remains |
//! | [`device`] | any peer, program and clock | no panic; memory without the right stays unchanged; every work request completes at most once and in order; no bytes stay in flight |
//!
//! `device` computes the ICRC, because the fuzzer cannot.
//!
//! ```text
//! cargo +nightly fuzz run --features libfuzzer <target> -- -max_total_time=60
//! cargo test -p urxe-fuzz                              # runs every kept input once, with any toolchain
//! cargo run -p urxe-fuzz --example seed_corpora        # copies packets of the captures into the corpora
//! cargo +nightly fuzz cmin --features libfuzzer <target> # after a long run, before keeping its inputs
//! ```
#![deny(unsafe_code)]

pub mod cm;
pub mod device;
pub mod headers;
pub mod mad;
pub mod parse;
pub mod round_trip;
