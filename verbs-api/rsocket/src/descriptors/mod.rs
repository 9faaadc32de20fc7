//! The table of rsockets by descriptor. An rsocket occupies a real descriptor, so no other file
//! gets the same number.

pub mod epoll;
pub mod poll;

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;
use urxe_stack::sys::fork::PerProcess;

use self::epoll::Epoll;
use crate::datagram::Datagram;
use crate::error::Result;
use crate::options::Flags;
use crate::stream::Stream;

/// The object of a descriptor.
#[derive(Clone)]
pub enum Entry {
    Socket(Socket),
    Epoll(Arc<Epoll>),
}

/// A socket.
#[derive(Clone)]
pub enum Socket {
    Stream(Arc<Stream>),
    Datagram(Arc<Datagram>),
}

impl Socket {
    /// Returns the flags that the program set.
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Stream(stream) => &stream.flags,
            Self::Datagram(datagram) => &datagram.flags,
        }
    }
}

static TABLE: PerProcess<RwLock<HashMap<RawFd, Entry>>> = PerProcess::new(RwLock::default);

pub fn insert(fd: RawFd, entry: Entry) {
    // If the program closed a descriptor by close(2), the old entry is dropped here, outside the
    // lock.
    let old = TABLE.get().write().unwrap_or_else(PoisonError::into_inner).insert(fd, entry);
    drop(old);
}

pub fn remove(fd: RawFd) -> Option<Entry> {
    TABLE.get().write().unwrap_or_else(PoisonError::into_inner).remove(&fd)
}

pub fn entry(fd: RawFd) -> Option<Entry> {
    TABLE.get().read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
}

/// Returns the socket of a descriptor, if it is an rsocket.
pub fn find(fd: RawFd) -> Option<Socket> {
    match entry(fd)? {
        Entry::Socket(socket) => Some(socket),
        Entry::Epoll(_) => None,
    }
}

/// Returns the socket of a descriptor. Fails with EBADF if the descriptor is not an rsocket.
pub fn socket(fd: RawFd) -> Result<Socket> {
    find(fd).ok_or(Errno::BADF)
}
