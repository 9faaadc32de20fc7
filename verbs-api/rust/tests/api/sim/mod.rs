//! Devices of a simulated network: the same API in virtual time.

mod congestion;
mod datagrams;
mod domains;
mod draining;
mod faults;
mod moderation;
mod multicast;
mod port;
mod shared;
mod solicited;
mod tasks;
mod time;
