//! The stack of a software RoCEv2 device, and the driver that moves it over UDP.
//!
//! [`driver`] owns the threads and descriptors. Everything else is re-exported from the layer that
//! defines it:
//!
//! | crate | modules here |
//! |---|---|
//! | `urxe-types` | [`time`], [`rng`], [`sync`], [`errors!`], definitions in the modules below |
//! | `urxe-memory` | [`memory`] |
//! | `urxe-device` | [`cq`], [`device`], [`path`], [`qp`], [`srq`] |
//! | `urxe-cm` | [`cm`], [`cma`] |
//! | `urxe-sim` | [`port::sim`], [`port::faults`] |
//! | `urxe-io` | [`link`], [`sys`], [`port::udp`], [`port::sharing`], `port::tap` (feature `capture`) |
//!
//! The protocol core (memory, device, cm) is sans-IO: it takes packets, time and the program's
//! calls, and gives packets, completions and the next deadline. It has no socket, no thread, no
//! clock and no global, and its randomness is passed in. The same core runs over UDP, in a seeded
//! network with virtual time, and under a fuzzer.
#![deny(unsafe_code)]

pub mod driver;

pub use urxe_cm::{cm, cma};
pub use urxe_device::{cq, device, path, qp, srq};
pub use urxe_io::{link, sys};
pub use urxe_memory as memory;
pub use urxe_types::{errors, rng, sync, time};

/// Where packets come and go: the traits of a port, and the ports.
pub mod port {
    #[cfg(feature = "capture")]
    pub use urxe_io::tap;
    pub use urxe_io::{sharing, udp};
    pub use urxe_sim::{self as sim, impairment as faults};
    pub use urxe_types::port::*;
}
