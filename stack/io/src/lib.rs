//! Sockets, system calls, and the state of the host that a device needs.
//!
//! | module | subject |
//! |---|---|
//! | [`files`] | files that this process writes at a path that its user chose |
//! | [`link`] | the devices of a user: names, addresses, interfaces |
//! | [`sharing`] | several processes on one address |
//! | [`sys`] | the system calls that no crate offers in the shape needed here |
//! | `tap` (feature `capture`) | a pcapng capture of the packets that pass a port |
//! | [`udp`] | a port over a UDP socket |
//!
//! Only [`sys`] has `unsafe` code.
#![deny(unsafe_code)]

pub mod files;
pub mod link;
pub mod sharing;
pub mod sys;
#[cfg(feature = "capture")]
pub mod tap;
pub mod udp;
