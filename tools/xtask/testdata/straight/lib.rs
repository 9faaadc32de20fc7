//! What is no cycle.

mod high;
pub mod low;

pub use high::High;
pub use low::Low;

pub const LIMIT: usize = 1;
