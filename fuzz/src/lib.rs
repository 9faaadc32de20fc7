//! The fuzz targets of urxe, as ordinary functions of bytes.
//!
//! | target | input | properties |
//! |---|---|---|
//! | [`parse`] | any bytes | parsed packets are emitted as the same bytes |
//! | [`round_trip`] | any valid packet | emitting and parsing returns the packet |
//! | [`mad`] | any bytes as MADs | parsed MADs are emitted, with reserved bits zero |
//! | [`cm`] | any peer, program and clock of a connection manager | see below |
//! | [`device`] | any peer, program and clock | see below |
//! | [`forward`] | any packets of another process of the address | see its page |
//! | [`rendezvous`] | any clients and servers of a shared address | see its page |
//! | [`listing`] | any bytes as a listing of connections | see its page |
//! | [`rsocket`] | any peer and program of an rsocket | see its page |
//! | [`capture`] | any bytes as a capture file | see its page |
//! | [`keys`] | any registrations, requests and ends of keys | a model agrees |
//!
//! No target may panic. [`cm`] also checks that limits hold, replies go to the sender, and
//! no connection remains. [`device`] also checks that:
//!
//! - memory without the access right stays unchanged;
//! - every work request completes at most once and in order;
//! - no bytes stay in flight.
//!
//! `device` computes the ICRC, because the fuzzer cannot.
//!
//! ```text
//! # runs every stored input once, with any toolchain
//! cargo test -p urxe-fuzz
//! # copies packets of the captures into the corpora
//! cargo run -p urxe-fuzz --example seed_corpora
//! cargo +nightly fuzz run --features libfuzzer <target> -- -max_total_time=60
//! # minimizes the corpus after a long run, before new inputs are committed
//! cargo +nightly fuzz cmin --features libfuzzer <target>
//! ```
#![deny(unsafe_code)]

pub mod capture;
pub mod cm;
pub mod device;
pub mod forward;
pub mod headers;
pub mod keys;
pub mod listing;
pub mod mad;
pub mod parse;
pub mod rendezvous;
pub mod round_trip;
pub mod rsocket;
