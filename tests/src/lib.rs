//! How we know.

pub mod sim;
