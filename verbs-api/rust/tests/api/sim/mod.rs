//! Devices of a simulated network, in virtual time.

mod cm;
mod congestion;
mod datagrams;
mod debug;
mod domains;
mod draining;
mod events;
mod faults;
mod keys;
mod moderation;
mod shared;
mod solicited;
mod time;
mod tokio_time;
