//! The connection manager: how two programs get their queue pairs connected.
//!
//! | module | subject |
//! |---|---|
//! | [`cm`] | the connection manager's messages and states (IBTA vol. 1, chapter 12) |
//! | [`cma`] | connections by IP addresses and ports, as `rdma_cm` gives them to programs |
//!
//! Both are sans-IO state machines. They know queue pairs by number only.
#![forbid(unsafe_code)]

pub mod cm;
pub mod cma;

#[cfg(test)]
mod test_network;
