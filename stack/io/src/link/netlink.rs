//! Notifications of changed interfaces and addresses: a netlink socket (rtnetlink(7)).
//!
//! The content of a message is ignored. After any message the caller reads all interfaces
//! ([`port_state`](super::port_state)), so a lost message costs nothing, because the kernel reports
//! the loss. Only the kernel and root can send to these groups.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR` (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// The most messages that one call takes.
const MAX_MESSAGES: usize = 256;

/// A subscription to changes. Its descriptor is readable when something changed.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
}

impl Changes {
    /// Subscribes to changes in the caller's network namespace, from now on.
    ///
    /// # Errors
    /// The system's, if a sandbox refuses netlink.
    pub fn watch() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0, the default.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket })
    }

    /// Takes the pending messages. Returns whether there were any.
    pub fn take(&self) -> bool {
        let mut message = [0_u8; 4096];
        let mut any = false;
        for _ in 0..MAX_MESSAGES {
            match recv(&self.socket, &mut message, RecvFlags::TRUNC) {
                // NOBUFS: messages were lost because the socket's buffer was full.
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
