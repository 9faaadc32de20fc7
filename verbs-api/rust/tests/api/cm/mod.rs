//! Connecting by addresses and ports, over UDP.

mod connections;
mod datagrams;
mod listening;
mod refusals;
mod support;
mod tasks;
