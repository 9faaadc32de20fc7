//! `rpoll` and `rselect` of plain descriptors, which the original hands to the system: event channels are such. Programs that use no rsocket
//! call them, too (rdma-core's examples all do).

use std::ffi::c_int;

/// `rpoll`
pub unsafe extern "C" fn poll(fds: *mut libc::pollfd, nfds: libc::nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the ABI's contract: as of poll(2).
    unsafe { libc::poll(fds, nfds, timeout) }
}

/// `rselect`
pub unsafe extern "C" fn select(
    nfds: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the ABI's contract: as of select(2).
    unsafe { libc::select(nfds, read, write, except, timeout) }
}
