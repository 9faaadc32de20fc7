//! How a result becomes what a C program gets.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::border::{guard, set_errno};
use crate::error::VerbError;

/// What an rsocket's call comes to.
pub type Result<T> = std::result::Result<T, Errno>;

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

/// The number of an error of the layers below; the reason goes to whoever asked for it
/// (`URXE_LOG=info`).
pub fn errno(error: VerbError) -> Errno {
    let errno = Errno::from_raw_os_error(error.errno());
    if errno != Errno::AGAIN {
        tracing::info!(target: "urxe_abi", "rsocket: {error}");
    }
    errno
}

/// A length for C; more than it can say cannot be in memory.
pub fn length(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
