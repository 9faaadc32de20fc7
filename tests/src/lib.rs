//! How we know.

pub mod kernel;
pub mod lab;
pub mod sim;
pub mod town;
