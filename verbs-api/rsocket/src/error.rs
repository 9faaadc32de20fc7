//! Conversion of errors of the stack to error numbers.

use rustix::io::Errno;
use urxe_stack::errno::ErrorNumber;

/// The result of a call: the error is the error number for the C program.
pub type Result<T> = std::result::Result<T, Errno>;

/// Returns the number of an error, and logs the error (`URXE_LOG=info`).
pub fn errno(error: impl ErrorNumber) -> Errno {
    let errno = Errno::from_raw_os_error(error.errno());
    if errno != Errno::AGAIN {
        tracing::info!("{error}");
    }
    errno
}
