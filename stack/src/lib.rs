//! What a RoCEv2 device does.
//!
//! The protocol core is sans-IO: it takes packets, time and the application's calls in, and gives
//! packets, completions and the next deadline out. It has no socket, no thread, no clock and no
//! global, and its randomness is passed in. The same core runs over UDP ([`port::udp`],
//! [`driver`]), in a seeded network with virtual time ([`port::sim`]) and under a fuzzer.
//!
//! | module | subject |
//! |---|---|
//! | [`time`] | the core's clock reading |
//! | `timers` | deadlines |
//! | [`rng`] | the seeded generator behind everything random |
//! | [`sync`] | locks and atomics, replaced by loom's under `--cfg loom` |
//! | [`memory`] | registered memory: keys, checks, pins, copies |
//! | [`cq`] | completions, completion queues and channels, asynchronous events |
//! | [`srq`] | shared receive queues |
//! | [`qp`] | queue pairs: attributes, transitions, requester, responder, completer |
//! | [`cm`] | the connection manager: how two programs get their queue pairs connected |
//! | [`cma`] | connections by IP addresses and ports, as `rdma_cm` gives them to programs |
//! | [`path`] | one peer address: window, round trip, the run being built |
//! | [`device`] | the table of all of these, limits, counters |
//! | [`link`] | which devices there are: names, addresses, interfaces |
//! | [`port`] | where packets come and go: UDP, the simulated network, the pcapng tap |
//! | [`driver`] | threads and descriptors that move a device over UDP |
//! | [`sys`] | the system calls that no crate offers in the shape needed here |
//!
//! `unsafe` stands in [`memory`] and [`sys`] only.
#![deny(unsafe_code)]

pub mod driver;
pub mod port;

pub use urxe_cm::{cm, cma};
pub use urxe_device::{cq, device, path, qp, srq};
pub use urxe_io::{link, sys};
pub use urxe_memory as memory;
pub use urxe_types::{rng, sync, time};
