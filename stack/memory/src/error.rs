//! What can go wrong with registered memory, one variant a reason.
//!
//! Registration and deregistration answer a program, so those errors carry an `errno`.
//! [`AccessError`] and [`Fault`] answer the data path: for a peer's packet they become a NAK or a
//! drop, for a local work request a completion status, and for a caller of the safe API an error.

mod access;
mod fast;
mod region;
mod window;

pub use access::{AccessError, Fault};
pub use fast::{AllocMrError, FastRegError, MapError};
pub use region::{DeregMrError, RegMrError, ReregMrError};
pub use window::{AllocMwError, BindError, DeallocMwError};
