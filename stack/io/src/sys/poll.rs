//! Polling descriptors that are a caller's plain numbers: closed or negative ones are the caller's
//! to name, and poll(2) says so of them.

use std::time::Duration;

use rustix::io::Errno;

/// Polls `fds` and returns how many have something; without `timeout`, waits until one has.
///
/// # Errors
/// The system's.
pub fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let millis = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the slice's entries are there during the call.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    usize::try_from(ready).map_err(|_| super::last_errno())
}
