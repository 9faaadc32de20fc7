//! The system calls that rustix and socket2 do not offer in the shape needed here.
//!
//! | module | subject |
//! |---|---|
//! | [`address`] | socket addresses in the kernel's layout |
//! | [`affinity`] | the processors on which the process started |
//! | [`clock`] | the monotonic clock and the wall clock |
//! | [`control`] | control messages; reading does not trust their lengths |
//! | [`environment`] | environment variables, which privileged programs ignore |
//! | [`fork`] | descriptors that a forked child must not keep |
//! | [`interfaces`] | the list of interfaces and their addresses |
//! | [`message`] | `sendmsg`, `sendmmsg`, `recvmmsg`, and the socket's error queue |
//! | [`poll`] | `poll` for a caller's descriptor numbers; whether signal handlers restart calls |
//! | [`process`] | the number of this process without a system call |
//! | [`record_lock`] | locks that end with the process |
//! | [`shared_memory`] | memory that two processes share, and copies into and out of it |
//! | [`socket`] | UDP sockets, socket options |
//! | [`steering`] | the choice between several sockets on one port |
//! | [`thread`] | threads with blocked signals |
//! | [`unix`] | local sockets: abstract names, credentials, passing descriptors |
//! | [`watcher`] | a process that sends the last messages of this one, however it ends |
//!
//! All functions here are safe. The pointers in a call are from references that live as long as the
//! call, and data from the kernel is read with bounds checks. Linux only, like rxe.
#![allow(unsafe_code)]

pub mod address;
pub mod affinity;
pub mod clock;
pub mod control;
pub mod environment;
pub mod fork;
pub mod interfaces;
pub mod message;
pub mod poll;
pub mod process;
pub mod record_lock;
pub mod shared_memory;
pub mod socket;
pub mod steering;
pub mod thread;
pub mod unix;
pub mod watcher;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Returns a random seed from the kernel (getrandom(2)).
///
/// # Errors
/// The kernel's; `EIO` if it gave too few bytes.
pub fn random_seed() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if length == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(Errno::IO) }
}

/// Returns a copy of the descriptor with this number, which a program passed to this process or its
/// user named. A forked or executed process does not inherit the copy.
///
/// # Errors
/// `EBADF` if there is no such descriptor or it is not open for writing; the kernel's.
pub fn duplicate_writable(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes no pointer, and makes a new descriptor without changing another one.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor that the call made, which nothing else owns.
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    let mode = rustix::fs::fcntl_getfl(&copy)? & OFlags::RWMODE;
    if mode == OFlags::RDONLY { Err(Errno::BADF) } else { Ok(copy) }
}

/// Returns the `errno` of the calling thread's last failed system call.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
