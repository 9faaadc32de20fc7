//! The connection manager (IBTA vol. 1, chapter 12): how two programs get their queue pairs connected.

pub mod ids;
