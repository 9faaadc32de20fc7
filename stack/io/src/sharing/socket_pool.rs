//! Keeps the sockets of a group open while any process of the address lives.
//!
//! The pool is a pair of local sockets; every process of the address has both ends. Each socket of
//! the group is the descriptor of a one-byte message in the queue, in the order of the group. A
//! process that needs a socket peeks at its message: that makes a new descriptor for the same
//! socket and leaves the message in the queue. So a process opens only the sockets that it uses,
//! and all sockets live as long as some process has the pool.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use socket2::Socket;

use crate::sys::fork::{CloseOnFork, close_all_on_fork, close_on_fork};
use crate::sys::unix;

/// The sockets of a group, queued in a local socket.
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

    /// Makes the pool that another process sent.
    pub fn passed(end_in: CloseOnFork<OwnedFd>, end_out: CloseOnFork<OwnedFd>) -> Self {
        Self { end_in, end_out }
    }

    /// Returns both ends.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.end_in.as_fd(), self.end_out.as_fd()]
    }

    /// Appends a socket.
    pub fn put(&self, socket: &Socket) -> Result<(), Errno> {
        unix::send(&self.end_in, &[&[0]], &[socket.as_fd()])
    }

    /// Returns the socket at `index`, if the pool has it. The caller must hold the group's lock,
    /// because all processes share the peek offset of the socket.
    pub fn peek(&self, index: u32) -> Result<Option<CloseOnFork<Socket>>, Errno> {
        unix::set_peek_offset(&self.end_out, index as i32)?;
        let peeked = close_on_fork(|| {
            let mut descriptors = Vec::with_capacity(unix::MAX_DESCRIPTORS);
            unix::receive(&self.end_out, &mut [0], &mut descriptors, true)?;
            // A message without a descriptor: this process may have reached its limit.
            descriptors.pop().map(Socket::from).ok_or(Errno::MFILE)
        });
        match peeked {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}
