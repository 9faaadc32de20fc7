//! How we know.

pub mod kernel;
pub mod process;
pub mod programs;
pub mod sim;
