//! Options and flags.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use libc::socklen_t;
use rustix::io::Errno;

use super::data::bytes;
use super::system;
use crate::node::lock;
use crate::rsocket::answer::answer;
use crate::rsocket::options::SOL_RDMA;
use crate::rsocket::table::{self, Socket};

/// `rsetsockopt`
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    answer("rsetsockopt", || {
        // SAFETY: the ABI's contract.
        let given = unsafe { bytes(value, len as usize) };
        match table::socket(fd)? {
            Socket::Stream(stream) => stream.set_option(level, name, given)?,
            Socket::Datagram(datagram) => {
                if level != SOL_RDMA {
                    // SAFETY: the ABI's contract.
                    system(unsafe { libc::setsockopt(fd, level, name, value, len) })?;
                }
                let is_fixed = datagram.is_begun();
                let is_known = lock(&datagram.options).set_plain(level, name, given, is_fixed)?;
                if level == SOL_RDMA && !is_known {
                    return Err(Errno::OPNOTSUPP);
                }
            }
        }
        Ok(0)
    })
}

/// `rgetsockopt`
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    answer("rgetsockopt", || {
        let found = match table::socket(fd)? {
            Socket::Stream(stream) => stream.option(level, name)?,
            Socket::Datagram(datagram) if level == SOL_RDMA => {
                lock(&datagram.options).get_plain(level, name).ok_or(Errno::OPNOTSUPP)?
            }
            Socket::Datagram(_) => {
                // SAFETY: the ABI's contract.
                system(unsafe { libc::getsockopt(fd, level, name, value, len) })?;
                return Ok(0);
            }
        };
        // SAFETY: the ABI's contract: `len` says how many bytes there are at `value`.
        unsafe {
            let room = len.as_mut().ok_or(Errno::FAULT)?;
            let fits = found.len().min(*room as usize);
            if !value.is_null() {
                ptr::copy_nonoverlapping(found.as_ptr(), value.cast::<u8>(), fits);
            }
            *room = fits as socklen_t;
        }
        Ok(0)
    })
}

/// `rfcntl`, whose third argument is there for the commands that have one.
pub extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    answer("rfcntl", || {
        let socket = table::socket(fd)?;
        let (status, of_fd) = match &socket {
            Socket::Stream(stream) => (&stream.status_flags, &stream.fd_flags),
            Socket::Datagram(datagram) => (&datagram.status_flags, &datagram.fd_flags),
        };
        match command {
            libc::F_GETFL => return Ok(status.load(Ordering::Relaxed)),
            libc::F_SETFL => status.store(argument as c_int, Ordering::Relaxed),
            libc::F_GETFD => return Ok(of_fd.load(Ordering::Relaxed)),
            libc::F_SETFD => of_fd.store(argument as c_int, Ordering::Relaxed),
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(0)
    })
}
