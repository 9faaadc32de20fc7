//! Record locks on single bytes of a file (fcntl(2), "traditional" ones).
//!
//! Such a lock belongs to the process, not to a descriptor. A forked child does not inherit the
//! lock, whatever copies of descriptors the child has, and the kernel releases the lock when the
//! process ends.
//!
//! There are two restrictions. The lock does not exclude other threads of the process. And closing
//! *any* descriptor of the file releases all locks of the process on that file. So a process must
//! have one descriptor of the file, and a mutex beside it.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::last_errno;

fn request(kind: libc::c_int, byte: u64) -> libc::flock {
    // SAFETY: all fields are integers, for which zero is valid. (Some platforms have private
    // padding in it.)
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = byte as libc::off_t;
    request.l_len = 1;
    request
}

fn call(file: impl AsFd, command: libc::c_int, request: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: the pointer is to a whole `flock`, exclusively borrowed through the call, which reads
    // and may write it.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut *request) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Locks a byte, unless another process has locked it. Returns whether this process has the lock
/// now. The file must be open for writing.
///
/// # Errors
/// `EBADF`, `ENOLCK`.
pub fn try_lock(file: impl AsFd, byte: u64) -> Result<bool, Errno> {
    match call(file, libc::F_SETLK, &mut request(libc::F_WRLCK, byte)) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Unlocks a byte.
///
/// # Errors
/// `EBADF`, `ENOLCK`.
pub fn unlock(file: impl AsFd, byte: u64) -> Result<(), Errno> {
    call(file, libc::F_SETLK, &mut request(libc::F_UNLCK, byte))
}

/// Returns whether another process has locked the byte.
///
/// # Errors
/// `EBADF`.
pub fn is_held_elsewhere(file: impl AsFd, byte: u64) -> Result<bool, Errno> {
    let mut request = request(libc::F_WRLCK, byte);
    call(file, libc::F_GETLK, &mut request)?;
    Ok(i32::from(request.l_type) != libc::F_UNLCK)
}
