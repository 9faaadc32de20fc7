//! A RoCEv2 device as a sans-IO state machine: queue pairs, completions, paths and timers.
//!
//! Packets, time and the program's calls go in; packets, completions and the next deadline come
//! out. This crate has no socket, no thread, no clock and no global, and its randomness is passed
//! in.
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
