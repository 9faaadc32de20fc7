//! Devices over UDP. Each test has two devices on addresses of its own.

mod channel;
mod errors;
mod memory;
mod own_memory;
mod shared;
mod strict;
mod tasks;
mod traffic;
mod waits;
mod windows;
