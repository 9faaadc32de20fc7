//! Local sockets: their names, the credentials of the peer, and passing descriptors (unix(7)).
//!
//! An abstract name is not a file. The name belongs to the network namespace, as IP addresses do,
//! and is freed with the last descriptor of the socket that is bound to it. A socket can also have
//! a file as its name. The file remains when the socket ends.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with, socketpair,
};

use super::socket;

/// The most descriptors of one message.
pub const MAX_DESCRIPTORS: usize = 4;

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id; 0 if it is in another process namespace.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
}

/// Returns the process that connected, or that called listen(2) on the listening socket
/// (SO_PEERCRED).
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    // `struct ucred` (linux/socket.h): process, user, group.
    let [pid, uid, _] = socket::words(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Peer { pid: pid as i32, uid })
}

/// The name of a listening socket.
#[derive(Clone, Copy, Debug)]
pub enum Name<'a> {
    /// A name of the network namespace.
    Abstract(&'a str),
    /// A file.
    File(&'a Path),
}

impl Name<'_> {
    fn address(self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            Self::File(path) => SocketAddrUnix::new(path),
        }
    }
}

/// Opens a SOCK_SEQPACKET socket that listens under a name. Non-blocking, close-on-exec.
///
/// # Errors
/// `EADDRINUSE` if the name is taken, `ENAMETOOLONG` for a path of more than 107 bytes.
pub fn listen_at(name: Name<'_>) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    bind(&socket, &name.address()?)?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Opens a socket that has a name and does not listen, so that no other socket can have the name.
///
/// # Errors
/// `EADDRINUSE` if the name is taken.
pub fn hold(name: Name<'_>) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    bind(&socket, &name.address()?)?;
    Ok(socket)
}

/// Connects to the socket that listens under a name. Non-blocking, close-on-exec.
///
/// # Errors
/// `ECONNREFUSED` if no socket listens, `ENOENT` if there is no such file, `EAGAIN` if the queue of
/// the socket is full.
pub fn connect_to(name: Name<'_>) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    connect(&socket, &name.address()?)?;
    Ok(socket)
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Makes two sockets that are connected with each other. Non-blocking, close-on-exec.
///
/// # Errors
/// The system's.
pub fn pair() -> Result<[OwnedFd; 2], Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(Into::into)
}

/// Sends a message with descriptors, without blocking.
///
/// # Errors
/// `EAGAIN` if the queue is full, `EPIPE` if the other end is closed, `ETOOMANYREFS` if the user
/// has too many descriptors in transit.
pub fn send(
    socket: impl AsFd,
    bytes: &[&[u8]],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let mut slices = [IoSlice::new(&[]), IoSlice::new(&[])];
    for (slice, bytes) in slices.iter_mut().zip(bytes) {
        *slice = IoSlice::new(bytes);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &slices, &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Receives a message without blocking, with its descriptors, which are close-on-exec. Returns its
/// length. With `peek`, the message stays in the queue, and the descriptors are new ones for the
/// same files.
///
/// # Errors
/// `EAGAIN` if none waits.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    peek: bool,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::PEEK, peek);
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok(received.bytes)
}

/// Sets the offset in the queue of the next peek, in bytes (SO_PEEK_OFF).
///
/// # Errors
/// Those of setsockopt(2); `EOPNOTSUPP` if the kernel cannot do this.
pub fn set_peek_offset(socket: impl AsFd, bytes: i32) -> Result<(), Errno> {
    socket::set_int(socket, socket::SO_PEEK_OFF, bytes)
}
