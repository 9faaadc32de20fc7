//! The crate as programs use it: over UDP, in simulated networks, and connected by addresses.

mod cm;
mod common;
mod sim;
mod text;
mod threads;
mod udp;
