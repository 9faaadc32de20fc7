//! A RoCEv2 device as a sans-IO state machine: queue pairs, completions, paths and timers.
//!
//! The inputs are packets, the time and the program's calls. The outputs are packets, completions
//! and the next deadline. This crate has no socket, thread, clock or global, and the caller passes
//! a seed for its randomness.
//!
//! | module | subject |
//! |---|---|
//! | [`device`] | the table of all objects |
//! | [`qp`] | queue pairs: transitions, requester, responder, completer |
//! | [`path`] | one peer address: window, round trip, the run being built |
//! | [`cq`] | completions, completion queues and channels, asynchronous events |
//! | [`srq`] | shared receive queues |
//! | `timers` | deadlines |
// Tests unmap registered memory on purpose.
#![cfg_attr(not(test), forbid(unsafe_code))]

mod ah_table;
pub mod cq;
pub mod device;
pub mod path;
pub mod qp;
mod slot_table;
pub mod srq;
mod timers;
