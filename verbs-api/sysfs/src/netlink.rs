//! Sockets of `NETLINK_RDMA`: questions about the devices, answered without the kernel.
//!
//! UCX 1.18.1 and later asks for each device whether it is a management device
//! (`uct_ib_device_is_smi` in `ib_device.c`). A kernel without RDMA refuses the socket, and UCX
//! prints an error. A kernel with RDMA would answer for its own devices.
//!
//! ```text
//!   program ── socket(AF_NETLINK, …, NETLINK_RDMA) ──> one end of a socket pair
//!              bind(sockaddr_nl) ──> nothing to do
//!              sendmsg, recv ──────> [kernel] ──> a thread at the other end: answers
//! ```
//!
//! The library replaces `socket`, and `bind`, because a socket pair refuses the address of netlink.
//! It replaces no function that moves data: the thread reads requests and sends messages in the
//! form of netlink(7). Programs that name the kernel's address when they send (libmnl, libnl) get
//! answers whose sender is missing, and refuse them.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::ptr;
use std::thread;

use libc::{sockaddr, socklen_t};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};

use crate::calls::next;
use crate::nldev;
use crate::path::root;

/// Stack in bytes of the thread that answers.
const STACK: usize = 128 * 1024;

/// Replaces the function of the C library.
///
/// # Safety
/// None: the arguments are numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK
        && protocol == libc::NETLINK_RDMA
        && root().is_some()
        && let Some(socket) = open(kind)
    {
        return socket.into_raw_fd();
    }
    next!(socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int)
}

/// Replaces the function of the C library.
///
/// # Safety
/// As bind(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the function's own contract: `len` bytes are there.
    if unsafe { is_netlink(address, len) } && is_pair(fd) {
        return 0;
    }
    next!(bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int)
}

/// Returns whether the address is one of netlink.
///
/// # Safety
/// As bind(2).
unsafe fn is_netlink(address: *const sockaddr, len: socklen_t) -> bool {
    let is_long_enough = len as usize >= size_of::<libc::sockaddr_nl>();
    // SAFETY: the caller's word.
    !address.is_null()
        && is_long_enough
        && c_int::from(unsafe { (*address).sa_family }) == libc::AF_NETLINK
}

/// Returns whether the socket is one of a pair of [`open`]. The kernel refuses netlink's address
/// for other sockets of the same kind, so their programs do not depend on the result.
fn is_pair(fd: c_int) -> bool {
    let option = |name| {
        let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
        let place = (&raw mut value).cast();
        // SAFETY: the place is as long as `len` says.
        let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &raw mut len) };
        (result == 0).then_some(value)
    };
    option(libc::SO_DOMAIN) == Some(libc::AF_UNIX)
        && option(libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET)
}

/// Opens a socket for the program and starts the thread that answers. Returns `None` if either
/// fails.
fn open(kind: c_int) -> Option<OwnedFd> {
    let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (programs, own) =
        rustix::net::socketpair(unix, packets, SocketFlags::CLOEXEC, None).ok()?;
    if kind & libc::SOCK_CLOEXEC == 0 {
        rustix::io::fcntl_setfd(&programs, rustix::io::FdFlags::empty()).ok()?;
    }
    if kind & libc::SOCK_NONBLOCK != 0 {
        rustix::io::ioctl_fionbio(&programs, true).ok()?;
    }
    let _blocked = SignalsBlocked::new();
    let thread = thread::Builder::new().name("urxe-netlink".to_owned()).stack_size(STACK);
    thread.spawn(move || serve(&own)).ok()?;
    Some(programs)
}

/// Answers requests until the program closes its socket.
fn serve(socket: &OwnedFd) {
    let mut request = [0; nldev::REQUEST_MAX];
    loop {
        match recv(socket, &mut request, RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) | Ok((0, _)) => return,
            Ok((len, _)) => {
                for answer in nldev::answers(&request[..len], &nldev::Files) {
                    if send(socket, &answer, SendFlags::NOSIGNAL).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// All signals of this thread are blocked until the value is dropped. A thread that starts
/// meanwhile keeps them blocked, so that the program's handlers run in the program's threads only.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        // SAFETY: both are places for a set, and all zeros are an empty set.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was made by the same function.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
