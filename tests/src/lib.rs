//! How we know.

pub mod build;
pub mod kernel;
pub mod programs;
pub mod sim;
