//! Being told when an interface or an address of this machine changes: a netlink socket
//! (rtnetlink(7)).
//!
//! What is told is not read, but for its being there: whoever is told looks at the interfaces anew
//! ([`port_state`](super::port_state)). So a message that got lost for want of room costs nothing, as the
//! kernel says that one did. Only the kernel sends to these groups, or root.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR` (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// Messages taken in a row before somebody looks.
const MAX_MESSAGES: usize = 256;

/// Readable when something changed.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
}

impl Changes {
    /// Told from now on, about the caller's network namespace.
    ///
    /// # Errors
    /// The system's, where a sandbox refuses netlink.
    pub fn watch() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0, the default.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket })
    }

    /// Takes what was told. Whether there was anything.
    pub fn take(&self) -> bool {
        let mut message = [0_u8; 4096];
        let mut any = false;
        for _ in 0..MAX_MESSAGES {
            match recv(&self.socket, &mut message, RecvFlags::TRUNC) {
                // NOBUFS: more was told than the socket holds.
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        any
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
