//! Local sockets: abstract names, who is at the other end, and passing descriptors (unix(7)).
//!
//! An abstract name is no file: it belongs to the network namespace, as IP addresses do, and goes
//! with the last descriptor of the socket that is bound to it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use super::socket;

/// Descriptors that one message carries at most here.
pub const MAX_DESCRIPTORS: usize = 4;

/// Who made the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process, 0 if it is in another process namespace.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
}

/// SO_PEERCRED: the process that connected, or that made the listening socket listen.
///
/// # Errors
/// What getsockopt(2) answers.
pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    // `struct ucred` (linux/socket.h): process, user, group.
    let [pid, uid, _] = socket::words(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Peer { pid: pid as i32, uid })
}

/// A socket of messages that listens under an abstract name. Non-blocking, closed on exec.
///
/// # Errors
/// `EADDRINUSE` if the name is taken.
pub fn listen_at(name: &str) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Connects to who listens under an abstract name. Non-blocking, closed on exec.
///
/// # Errors
/// `ECONNREFUSED` if nobody does, `EAGAIN` if its queue is full.
pub fn connect_to(name: &str) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends a message with descriptors, without blocking.
///
/// # Errors
/// `EAGAIN` if the queue is full, `EPIPE` if nobody will read it, `ETOOMANYREFS` if the user has
/// too many descriptors on their way.
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

/// Receives a message with the descriptors it carries, closed on exec, without blocking. Returns
/// its length. With `peek`, the message stays in the queue, and the descriptors are new ones for
/// the same files.
///
/// # Errors
/// `EAGAIN` when none waits.
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

/// SO_PEEK_OFF: where in the queue the next peek looks, in bytes.
///
/// # Errors
/// What setsockopt(2) answers; `EOPNOTSUPP` where the kernel cannot.
pub fn set_peek_offset(socket: impl AsFd, bytes: i32) -> Result<(), Errno> {
    socket::set_int(socket, socket::SO_PEEK_OFF, bytes)
}
