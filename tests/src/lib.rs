//! The harnesses of the tests: the fault simulation, Debian's programs, and real kernels as peers.

pub mod kernel;
pub mod process;
pub mod programs;
pub mod sim;
