//! The shared parts of the tests and benches of urxe: hosts with a device and memory, a wire
//! between them, packets as differences from a template, and the frame of simulations.
//!
//! | module | contents |
//! |---|---|
//! | [`qp`] | transitions of a queue pair to RTS; attributes and work requests with defaults |
//! | [`wire`] | a lossless wire, whose packets a test can inspect, change and deliver |
//! | [`host`] | a device with memory, completion queue and queue pair; two connected hosts |
//! | [`packet`] | packets as values, to and from bytes |
//! | [`lab`] | one connected queue pair whose peer is the test |
//! | [`net`] | several devices with datagram queue pairs |
//! | [`namespace`] | a network namespace of the test |
//! | [`capture`] | packets of a capture file |
//! | `simulation` | devices on a bad network, seeds, tallies (feature `simulation`) |
//!
//! ```
//! use urxe_device::cq::WcStatus;
//! use urxe_device::qp::work_request::SendOp;
//! use urxe_test_support::host::{pair, run};
//!
//! let (a, b, wire) = pair();
//! b.write(64, b"hello");
//! a.post(SendOp::Read { remote: b.remote(64) }, &[a.sge(0, 5)]);
//! run(&a, &b, &wire);
//! assert_eq!(a.bytes(0, 5), b"hello");
//! assert_eq!(a.statuses(), [WcStatus::Success]);
//! ```
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
