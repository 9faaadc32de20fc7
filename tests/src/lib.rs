//! How we know.

pub mod kernel;
pub mod sim;
