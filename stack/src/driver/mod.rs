//! (being written)

pub mod eventfd;
