//! Connecting by addresses and ports, over UDP.

mod common;
mod connections;
mod datagrams;
mod listening;
mod refusals;
mod tasks;
