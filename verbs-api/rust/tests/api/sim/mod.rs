//! Devices of a simulated network, in virtual time.

#[cfg(feature = "cm")]
mod cm;
mod congestion;
mod datagrams;
#[cfg(feature = "cm")]
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
#[cfg(feature = "cm")]
mod tokio_time;
