//! What the tests and benches of urxe share: hosts with a device and memory, a wire between them,
//! packets written as differences from a template, and the scaffold of simulations.
//!
//! | module | what it has |
//! |---|---|
//! | [`qp`] | the way of a queue pair to RTS, attributes and work requests with defaults |
//! | [`wire`] | a wire that loses nothing: what is on it can be looked at, changed and delivered |
//! | [`host`] | a device with memory, completion queue and queue pair, and two that are connected |
//! | [`packet`] | packets as values, to and from bytes |
//! | [`lab`] | one connected queue pair whose peer is the test |
//! | [`net`] | several devices with datagram queue pairs |
//! | [`namespace`] | a network namespace of the test's own |
//! | [`capture`] | packets of a capture file |
//! | `simulation` | devices on a bad network, seeds, tallies (feature `simulation`) |
#![forbid(unsafe_code)]

pub mod capture;
pub mod host;
pub mod lab;
pub mod namespace;
pub mod net;
pub mod packet;
pub mod qp;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod wire;
