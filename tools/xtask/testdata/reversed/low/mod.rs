//! Must not use `high`.

mod deep;

pub struct Low;
