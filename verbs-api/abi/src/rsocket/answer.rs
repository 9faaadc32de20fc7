//! How the result of a call becomes what a C program gets.

use std::ffi::c_int;

use urxe_rsocket::Result;

use crate::border::{guard, set_errno};

/// A type of C's results, of which one value says that `errno` was set.
pub trait Answer: Copy {
    const REFUSED: Self;
}

impl Answer for c_int {
    const REFUSED: Self = -1;
}

impl Answer for isize {
    const REFUSED: Self = -1;
}

impl Answer for i64 {
    const REFUSED: Self = -1;
}

impl Answer for usize {
    const REFUSED: Self = Self::MAX;
}

/// Runs a call. That it would block is no reason to tell, so nothing is logged above `debug`.
pub fn answer<T: Answer>(call: &'static str, run: impl FnOnce() -> Result<T>) -> T {
    guard(T::REFUSED, || match run() {
        Ok(value) => value,
        Err(errno) => {
            tracing::debug!(target: "urxe_abi", %errno, "{call}");
            set_errno(errno.raw_os_error());
            T::REFUSED
        }
    })
}

/// Runs a call that answers 0.
pub fn answer_zero(call: &'static str, run: impl FnOnce() -> Result<()>) -> c_int {
    answer(call, || run().map(|()| 0))
}

/// Returns a length for C; more than it can say cannot be in memory.
pub fn length(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
