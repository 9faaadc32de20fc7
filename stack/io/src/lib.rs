//! Sockets, system calls and what a device needs of its host.
//!
//! | module | subject |
//! |---|---|
//! | [`link`] | which devices there are: names, addresses, interfaces |
//! | [`sharing`] | several processes on one address |
//! | [`sys`] | the system calls that no crate offers in the shape needed here |
//! | `tap` (feature `capture`) | a pcapng capture of what passes a port |
//! | [`udp`] | a port over a UDP socket |
//!
//! `unsafe` stands in [`sys`] only.
#![deny(unsafe_code)]

pub mod link;
pub mod sharing;
pub mod sys;
#[cfg(feature = "capture")]
pub mod tap;
pub mod udp;
