//! How a verb's result, or its panic, becomes what a C program gets.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::VerbError;

/// Sets the calling thread's `errno`.
pub fn set_errno(errno: c_int) {
    // SAFETY: the C library gives every thread a place for its errno, valid as long as the thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Runs `call`; if it panics, `errno` is EIO and the answer `broken`.
pub fn guard<T>(broken: T, call: impl FnOnce() -> T) -> T {
    // What a panic left half done is behind locks that recover (see urxe_stack::sync); nothing else is shared.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => value,
        Err(_) => {
            set_errno(libc::EIO);
            broken
        }
    }
}

/// For verbs that return 0 or the error number. `errno` is set as well, since some programs look there.
pub fn number(verb: &'static str, call: impl FnOnce() -> Result<(), VerbError>) -> c_int {
    guard(libc::EIO, || match call() {
        Ok(()) => 0,
        Err(error) => refuse(verb, &error),
    })
}

/// For verbs that return 0, or -1 with the error number in `errno`.
pub fn minus_one(verb: &'static str, call: impl FnOnce() -> Result<(), VerbError>) -> c_int {
    guard(-1, || match call() {
        Ok(()) => 0,
        Err(error) => {
            refuse(verb, &error);
            -1
        }
    })
}

/// For verbs that return a pointer, or NULL with the error number in `errno`.
pub fn pointer<T>(verb: &'static str, call: impl FnOnce() -> Result<*mut T, VerbError>) -> *mut T {
    guard(std::ptr::null_mut(), || match call() {
        Ok(pointer) => pointer,
        Err(error) => {
            refuse(verb, &error);
            std::ptr::null_mut()
        }
    })
}

/// Tells why a verb was refused, to whoever asked for it (`URXE_LOG=warn`), and sets `errno`, which it returns.
#[cold]
pub fn refuse(verb: &'static str, error: &VerbError) -> c_int {
    let errno = error.errno();
    tracing::warn!(target: "urxe_abi", errno, "{verb}: {error}");
    // Last: writing the line may have changed it.
    set_errno(errno);
    errno
}
