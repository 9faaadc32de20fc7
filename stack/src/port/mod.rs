//! Where packets come and go.
//!
//! A port sends *runs* and receives *datagrams of equal segments*, so that one system call moves
//! many packets (UDP GSO and GRO). The simulated network and the tap see the same two shapes.


pub use urxe_io::{sharing, tap, udp};
pub use urxe_sim::{self as sim, impairment as faults};
pub use urxe_types::port::*;
