//! `low::deep` names `high` through the root and within a macro.

mod high;
mod low;

pub use high::High;
