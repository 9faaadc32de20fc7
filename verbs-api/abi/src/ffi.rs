//! The border to C: conversion of a verb's result, or of its panic, into a C result; and
//! cancellation of the calling thread (`pthread_cancel`).
//!
//! A cancelled thread unwinds from a cancellation point of the C library, such as `sendmsg`. Such
//! an unwinding must not start in Rust code, because that code may hold a lock, and because a Rust
//! function with the C calling convention ends the process. [`catch_panic`] therefore disables
//! cancellation while Rust code runs. The calls that wait for an event sleep in
//! [`return_after_sleep`], whose frames own nothing, and are cancelled there.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use urxe_stack::sys::poll::restart_calls;

use crate::error::VerbError;

/// Sets the calling thread's `errno`.
pub fn set_errno(errno: c_int) {
    // SAFETY: the C library gives every thread a place for its errno, valid as long as the thread.
    unsafe { *libc::__errno_location() = errno };
}

unsafe extern "C" {
    // The crate libc lacks this function.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    // A cancellation point unwinds, so the declaration of the crate libc does not fit.
    fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of the GNU C library and of musl.
const CANCEL_DISABLE: c_int = 1;

/// Disables cancellation of the calling thread, until it is dropped.
struct NotCancellable {
    /// The state that the program set.
    before: c_int,
}

impl NotCancellable {
    #[inline]
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: the call changes a flag of the calling thread and stores the old one.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for NotCancellable {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above. Enabling cancellation is no cancellation point.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}

/// Runs `call` while the thread cannot be cancelled. If it panics, sets `errno` to EIO and returns
/// `broken`.
pub fn catch_panic<T>(broken: T, call: impl FnOnce() -> T) -> T {
    let _cancellation = NotCancellable::new();
    // State that a panic left inconsistent is behind locks that recover (see urxe_stack::sync);
    // nothing else is shared.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => value,
        Err(_) => {
            set_errno(libc::EIO);
            broken
        }
    }
}

/// Returns 0 or the error number. Also sets `errno`, because some programs read it.
pub fn return_errno(verb: &'static str, call: impl FnOnce() -> Result<(), VerbError>) -> c_int {
    catch_panic(libc::EIO, || match call() {
        Ok(()) => 0,
        Err(error) => log_and_set_errno(verb, &error),
    })
}

/// Returns 0, or -1 with the error number in `errno`.
pub fn return_minus_one(verb: &'static str, call: impl FnOnce() -> Result<(), VerbError>) -> c_int {
    catch_panic(-1, || match call() {
        Ok(()) => 0,
        Err(error) => fail(verb, &error),
    })
}

/// Logs the error of a verb, sets `errno` and returns -1.
#[cold]
fn fail(verb: &'static str, error: &VerbError) -> c_int {
    log_and_set_errno(verb, error);
    -1
}

/// Repeats `step` until the call is over; returns 0, or -1 with the error number in `errno`. `step`
/// returns the descriptor on which the call goes on waiting, or `None` at the end of the call.
///
/// Between two steps, the thread sleeps until the descriptor is readable. It can be cancelled
/// there, as in the `read` of the original. A signal ends the call with EINTR, unless its handler
/// restarts calls.
///
/// The captures of `step` are `Copy` and so have no destructor, because cancellation unwinds this
/// function and its caller.
#[inline]
pub fn return_after_sleep(
    verb: &'static str,
    step: impl Fn() -> Result<Option<RawFd>, VerbError> + Copy,
) -> c_int {
    let mut is_interrupted = false;
    loop {
        let outcome = catch_panic(Err(-1), || {
            if is_interrupted && !restart_calls() {
                return Err(fail(verb, &VerbError::system("a signal arrived", Errno::INTR)));
            }
            match step() {
                Ok(Some(fd)) => Ok(fd),
                Ok(None) => Err(0),
                Err(error) => Err(fail(verb, &error)),
            }
        });
        let fd = match outcome {
            Ok(fd) => fd,
            Err(result) => return result,
        };
        let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives through the call. The frames that the unwinding of a
        // cancelled thread leaves have no destructors. Events, and a descriptor that was closed,
        // are left to the next step.
        is_interrupted = unsafe { poll(&raw mut wait, 1, -1) } < 0;
    }
}

/// Returns a pointer, or NULL with the error number in `errno`.
pub fn return_ptr<T>(
    verb: &'static str,
    call: impl FnOnce() -> Result<*mut T, VerbError>,
) -> *mut T {
    catch_panic(ptr::null_mut(), || match call() {
        Ok(pointer) => pointer,
        Err(error) => {
            log_and_set_errno(verb, &error);
            ptr::null_mut()
        }
    })
}

/// Refuses an argument that is NULL.
pub const fn non_null<T>(argument: *const T, name: &'static str) -> Result<(), VerbError> {
    if argument.is_null() { Err(VerbError::Null(name)) } else { Ok(()) }
}

/// Stores a number into a field of a C structure. Several threads may do so at a time, because the
/// verbs that do are safe to call from threads.
///
/// # Safety
/// `field` is a field of a structure that stays valid, and Rust code accesses it only by this
/// function and [`add_to_field`].
pub unsafe fn store_field(field: *mut u32, value: u32) {
    // SAFETY: the caller's; a field is aligned.
    unsafe { AtomicU32::from_ptr(field) }.store(value, Ordering::Relaxed);
}

/// Adds a number to a field of a C structure, modulo 2^32. Several threads may do so at a time.
///
/// # Safety
/// As for [`store_field`].
pub unsafe fn add_to_field(field: *mut u32, number: u32) {
    // SAFETY: the caller's; a field is aligned.
    unsafe { AtomicU32::from_ptr(field) }.fetch_add(number, Ordering::Relaxed);
}

/// Writes as much of `value` as fits into `size` bytes, and clears the rest. The program's
/// structure may be older and shorter than `value`, or newer and longer.
///
/// # Safety
/// `size` bytes at `to` can be written.
pub unsafe fn write_prefix<T>(to: *mut T, size: usize, value: &T) {
    // SAFETY: the caller's; no more bytes are copied than both have.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, size);
        let common = size.min(size_of::<T>());
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), common);
    }
}

/// Logs the error of a verb (shown with `URXE_LOG=warn`), sets `errno` and returns the number. A
/// call that found nothing on a non-blocking descriptor is no error; it is shown with
/// `URXE_LOG=trace`.
#[cold]
pub fn log_and_set_errno(verb: &'static str, error: &VerbError) -> c_int {
    let errno = error.errno();
    if errno == libc::EAGAIN {
        tracing::trace!(target: "urxe_abi", errno, "{verb}: {error}");
    } else {
        tracing::warn!(target: "urxe_abi", errno, "{verb}: {error}");
    }
    // Last, because logging may change errno.
    set_errno(errno);
    errno
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    /// Stands for a bug of this library.
    fn broken<T>() -> T {
        panic!("this fault is a test's")
    }

    fn errno() -> c_int {
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() }
    }

    extern "C" fn answers_number() -> c_int {
        return_errno("ibv_number", broken)
    }

    extern "C" fn answers_minus_one() -> c_int {
        return_minus_one("ibv_minus_one", broken)
    }

    extern "C" fn answers_pointer() -> *mut u8 {
        return_ptr("ibv_pointer", broken)
    }

    extern "C" fn unguarded() {
        broken()
    }

    #[test]
    fn a_panic_is_eio_and_the_process_lives_on() {
        for call in [answers_number as extern "C" fn() -> c_int, answers_minus_one] {
            set_errno(0);
            call();
            assert_eq!(errno(), libc::EIO);
        }
        assert_eq!((answers_number(), answers_minus_one()), (libc::EIO, -1));
        set_errno(0);
        assert!(answers_pointer().is_null());
        assert_eq!(errno(), libc::EIO);
    }

    #[test]
    fn a_panic_while_an_error_is_logged_is_eio_as_well() {
        struct Unspeakable;
        impl std::io::Write for Unspeakable {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                broken()
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let logger = tracing_subscriber::fmt().with_writer(|| Unspeakable).finish();
        let answer = tracing::subscriber::with_default(logger, || {
            return_errno("ibv_number", || Err(VerbError::system("a call", Errno::NOSPC)))
        });
        assert_eq!((answer, errno()), (libc::EIO, libc::EIO));
    }

    #[test]
    fn without_a_panic_the_result_is_that_of_the_call() {
        set_errno(0);
        assert_eq!((return_errno("ibv_number", || Ok(())), errno()), (0, 0));
        let full = || Err(VerbError::system("a call", Errno::NOSPC));
        assert_eq!((return_errno("ibv_number", full), errno()), (libc::ENOSPC, libc::ENOSPC));
        set_errno(0);
        let full = || Err(VerbError::system("a call", Errno::NOSPC));
        assert_eq!((return_minus_one("ibv_minus_one", full), errno()), (-1, libc::ENOSPC));
    }

    #[test]
    fn a_panic_without_a_guard_ends_the_process_instead_of_unwinding_into_c() {
        const ROLE: &str = "URXE_TEST_BORDER_ABORTS";
        if std::env::var_os(ROLE).is_some() {
            // This is the process that the test starts below.
            let outcome = catch_unwind(|| unguarded());
            println!("unwound through C: {}", outcome.is_err());
            return;
        }
        let name = std::thread::current().name().unwrap().to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", "--nocapture", &name]).env(ROLE, "").output().unwrap();
        let printed =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{printed:?}");
        assert!(!printed[0].contains("unwound"), "{printed:?}");
        assert!(printed[1].contains("this fault is a test's"), "{printed:?}");
    }
}
