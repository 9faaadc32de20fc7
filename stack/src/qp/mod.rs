//! (being written)

pub mod attr;
pub mod transition;
