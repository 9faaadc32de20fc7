//! How we know.

pub mod build;
pub mod kernel;
pub mod lab;
pub mod programs;
pub mod sim;
pub mod town;
