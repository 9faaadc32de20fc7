//! Types that every layer of the stack shares.
//!
//! | module | subject |
//! |---|---|
//! | [`access`] | rights to memory, memory windows |
//! | [`allocate`] | allocations that return an error without memory |
//! | [`attr`] | attributes of a queue pair |
//! | [`completion`] | work completions: status, opcode, flags |
//! | [`counters`] | counters of a device |
//! | [`errno`] | a macro for errors with a message and an `errno` |
//! | [`escape`] | text of other processes and of peers, for terminals and logs |
//! | [`ids`] | identifiers of a device's objects |
//! | [`limits`] | limits of a device |
//! | [`listing`] | listings of objects and connections for other programs |
//! | [`owner`] | processes that hold an address or a service |
//! | [`port`] | runs and datagrams, and the traits of a port |
//! | [`qpn`] | structure of queue pair numbers |
//! | [`rng`] | the seeded random number generator |
//! | [`sync`] | locks and atomics, replaced by loom's under `--cfg loom` |
//! | [`time`] | time of the core's clock |
//! | [`wake`] | notification of a program outside the core |
//! | [`work_request`] | work requests |
//!
//! This crate has no I/O and reads no clock.
//!
//! ```
//! use urxe_types::access::Access;
//! use urxe_types::rng::Rng;
//! use urxe_types::time::Time;
//!
//! // The caller passes the time.
//! let start = Time::from_ns(0);
//! assert_eq!(start.plus_ns(500).as_ns(), 500);
//! // Equal seeds give equal numbers.
//! assert_eq!(Rng::stream(7, 1).below(100), Rng::stream(7, 1).below(100));
//! // Rights of a region.
//! let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
//! assert!(!access.contains(Access::REMOTE_WRITE));
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod allocate;
pub mod attr;
pub mod completion;
pub mod counters;
pub mod errno;
pub mod escape;
pub mod ids;
pub mod limits;
pub mod listing;
pub mod names;
pub mod owner;
pub mod port;
pub mod qpn;
pub mod rng;
pub mod sync;
pub mod time;
pub mod wake;
pub mod work_request;

pub use urxe_wire::named_enum;
