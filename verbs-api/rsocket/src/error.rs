//! How an error of the stack becomes an error number.

use rustix::io::Errno;
use urxe_stack::errno::ErrorNumber;

/// The result of a call: an error is the number that the C program gets.
pub type Result<T> = std::result::Result<T, Errno>;

/// Returns the number of an error, and logs its reason (`URXE_LOG=info`).
pub fn errno(error: impl ErrorNumber) -> Errno {
    let errno = Errno::from_raw_os_error(error.errno());
    if errno != Errno::AGAIN {
        tracing::info!("{error}");
    }
    errno
}
