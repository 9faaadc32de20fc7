//! Devices of a simulated network: the same API in virtual time.

mod common;
mod faults;
mod moderation;
mod tasks;
mod time;
