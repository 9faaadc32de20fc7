//! Devices over UDP, two in this process, each pair on addresses of its own.

mod common;
mod traffic;
