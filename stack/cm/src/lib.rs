//! The connection manager, which connects the queue pairs of two programs.
//!
//! | module | subject |
//! |---|---|
//! | [`cm`] | messages and states of the connection manager (IBTA vol. 1, chapter 12) |
//! | [`cma`] | connections by IP addresses and ports, like `rdma_cm` |
//!
//! Both are sans-IO state machines. They know queue pairs only by number.
#![forbid(unsafe_code)]

pub mod cm;
pub mod cma;

#[cfg(test)]
mod test_network;
