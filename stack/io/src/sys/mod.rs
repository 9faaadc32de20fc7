//! System calls: the few that rustix and socket2 do not offer in the shape needed here.
//!
//! | module | subject |
//! |---|---|
//! | [`address`] | socket addresses as the kernel lays them out |
//! | [`clock`] | the monotonic clock and the wall clock |
//! | [`control`] | control messages: writing them, and reading them without trusting their lengths |
//! | [`fork`] | descriptors that a forked child must not keep |
//! | [`message`] | `sendmsg`, `sendmmsg`, `recvmmsg`, and the socket's error queue |
//! | [`poll`] | polling descriptors that are a caller's plain numbers; what signal handlers do to it |
//! | [`process`] | this process's number, without a system call each time |
//! | [`record_lock`] | locks that end with the process |
//! | [`socket`] | UDP sockets, socket options |
//! | [`steering`] | which of several sockets on one port a packet goes to |
//! | [`thread`] | threads that take none of the application's signals |
//! | [`unix`] | local sockets: abstract names, credentials, passing descriptors |
//!
//! Everything here is a safe function: the pointers that a call gets come from references that live
//! as long as the call, and whatever the kernel wrote is read with bounds checks. Linux only, as
//! rxe is.
#![allow(unsafe_code)]

pub mod address;
pub mod clock;
pub mod control;
pub mod fork;
pub mod message;
pub mod poll;
pub mod process;
pub mod record_lock;
pub mod socket;
pub mod steering;
pub mod thread;
pub mod unix;

use rustix::io::Errno;

/// Returns random bits of the kernel (getrandom(2)) as the seed of a generator.
///
/// # Errors
/// The kernel's; `EIO` if it gave fewer.
pub fn random_seed() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if length == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(Errno::IO) }
}

/// The error that the calling thread's last failed system call left in `errno`.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
