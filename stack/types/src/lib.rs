//! Types that every layer of the stack shares: time, numbers, attributes, work requests,
//! completions, limits, counters, and the traits of a port.
//!
//! | module | subject |
//! |---|---|
//! | [`access`] | rights to memory, who asks for them, memory windows |
//! | [`attr`] | a queue pair's attributes |
//! | [`completion`] | one work completion: status, opcode, flags |
//! | [`counters`] | what a device counts |
//! | [`errno`] | how errors state their message and their `errno` |
//! | [`ids`] | numbers of a device's objects |
//! | [`limits`] | what a device can do |
//! | [`owner`] | processes that hold an address or a service |
//! | [`port`] | runs and datagrams, and the traits of a port |
//! | [`qpn`] | how a queue pair number is made up |
//! | [`rng`] | the seeded generator behind everything random |
//! | [`sync`] | locks and atomics, replaced by loom's under `--cfg loom` |
//! | [`time`] | the core's clock reading |
//! | [`wake`] | waking a program outside the core |
//! | [`work_request`] | work requests |
//!
//! This crate has no I/O and reads no clock.
#![forbid(unsafe_code)]

pub mod access;
pub mod attr;
pub mod completion;
pub mod counters;
pub mod errno;
pub mod ids;
pub mod limits;
pub mod owner;
pub mod port;
pub mod qpn;
pub mod rng;
pub mod sync;
pub mod time;
pub mod wake;
pub mod work_request;

pub use urxe_wire::named_enum;
