//! Where the sockets of a group are kept, so that none is lost when its process dies.
//!
//! A pair of local sockets of which every process of the address has both ends. Each socket of the
//! group lies in it as the descriptor of a message of one byte, in the order of the group; who
//! wants one peeks at its message, which makes a new descriptor for the same socket and leaves the
//! message. So a process has open what it uses, not all sockets of the group, and the sockets live
//! exactly as long as some process has the socket_pool.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use socket2::Socket;

use crate::sys::fork::{CloseOnFork, close_all_on_fork, close_on_fork};
use crate::sys::unix;

/// See the module.
#[derive(Debug)]
pub(super) struct SocketPool {
    end_in: CloseOnFork<OwnedFd>,
    end_out: CloseOnFork<OwnedFd>,
}

impl SocketPool {
    pub fn new() -> Result<Self, Errno> {
        let mut ends = close_all_on_fork(|| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .map(|(a, b)| vec![a, b])
        })?;
        let (Some(end_out), Some(end_in)) = (ends.pop(), ends.pop()) else { return Err(Errno::IO) };
        Ok(Self { end_in, end_out })
    }

    /// The socket_pool that another process passed on.
    pub fn passed(end_in: CloseOnFork<OwnedFd>, end_out: CloseOnFork<OwnedFd>) -> Self {
        Self { end_in, end_out }
    }

    /// Both ends.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.end_in.as_fd(), self.end_out.as_fd()]
    }

    /// Puts a socket behind the others.
    pub fn put(&self, socket: &Socket) -> Result<(), Errno> {
        unix::send(&self.end_in, &[&[0]], &[socket.as_fd()])
    }

    /// The socket at `index`, if there are so many. The caller holds the group's lock: where to
    /// peek is a property of the socket that all processes share.
    pub fn peek(&self, index: u32) -> Result<Option<CloseOnFork<Socket>>, Errno> {
        unix::set_peek_offset(&self.end_out, index as i32)?;
        let peeked = close_on_fork(|| {
            let mut descriptors = Vec::with_capacity(unix::MAX_DESCRIPTORS);
            unix::receive(&self.end_out, &mut [0], &mut descriptors, true)?;
            // A message without a descriptor: this process may have no more of them.
            descriptors.pop().map(Socket::from).ok_or(Errno::MFILE)
        });
        match peeked {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}
