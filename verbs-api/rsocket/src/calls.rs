//! The functions on descriptors. Each fails with EBADF for a descriptor that is not an rsocket.

use std::ffi::{c_int, c_long};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::epoll_event;
use rustix::io::Errno;
use urxe_stack::memory::{Access, Memory, Mr, PdId, RegMrError};
use urxe_stack::sync::lock;

use crate::datagram::Datagram;
use crate::descriptors::epoll::Epoll;
use crate::descriptors::{self, Entry, Socket};
use crate::error::Result;
use crate::iovec::{GatherList, ScatterList};
use crate::options::{Flags, Wait};
use crate::process::Process;
use crate::stream::Stream;
use crate::stream::iomap::MapRequest;

/// Flags that a socket type may include.
const TYPE_FLAGS: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// Makes a socket (`rsocket`).
///
/// # Errors
/// EOPNOTSUPP for other families and types, or an error of the system.
pub fn socket(
    process: &'static dyn Process,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> Result<RawFd> {
    let is_ip = matches!(domain, libc::AF_INET | libc::AF_INET6);
    let status = if kind & libc::SOCK_NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 };
    let of_fd = if kind & libc::SOCK_CLOEXEC != 0 { libc::FD_CLOEXEC } else { 0 };
    let (fd, socket) = match (kind & !TYPE_FLAGS, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) if is_ip => {
            let stream = Stream::new(process, domain)?;
            (stream.fd, Socket::Stream(stream))
        }
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) if is_ip => {
            let datagram = Datagram::new(process, domain)?;
            (datagram.fd(), Socket::Datagram(datagram))
        }
        _ => return Err(Errno::OPNOTSUPP),
    };
    socket.flags().set(status, of_fd);
    descriptors::insert(fd, Entry::Socket(socket));
    Ok(fd)
}

fn stream(fd: RawFd) -> Result<Arc<Stream>> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(Errno::OPNOTSUPP),
    }
}

/// Returns whether the socket is a SOCK_DGRAM. The descriptor of a SOCK_DGRAM is that of a UDP
/// socket.
///
/// # Errors
/// EBADF.
pub fn is_datagram(fd: RawFd) -> Result<bool> {
    descriptors::socket(fd).map(|socket| matches!(socket, Socket::Datagram(_)))
}

/// Binds a socket (`rbind`).
///
/// # Errors
/// As bind(2).
pub fn bind(fd: RawFd, address: SocketAddr) -> Result<()> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => stream.bind(address),
        Socket::Datagram(datagram) => datagram.bind(address),
    }
}

/// Listens for connections (`rlisten`).
///
/// # Errors
/// As listen(2).
pub fn listen(fd: RawFd, backlog: c_int) -> Result<()> {
    stream(fd)?.listen(backlog)
}

/// Accepts a connection (`raccept`), and returns its descriptor and its peer's address.
///
/// # Errors
/// As accept(2).
pub fn accept(fd: RawFd) -> Result<(RawFd, Option<SocketAddr>)> {
    let listener = stream(fd)?;
    let (made, number) = listener.accept(listener.flags.wait(0))?;
    let peer = made.id.addresses()?.1;
    descriptors::insert(number, Entry::Socket(Socket::Stream(made)));
    Ok((number, peer))
}

/// Connects a socket (`rconnect`).
///
/// # Errors
/// As connect(2).
pub fn connect(fd: RawFd, to: SocketAddr) -> Result<()> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => stream.connect(to, stream.flags.wait(0)),
        Socket::Datagram(datagram) => datagram.connect(to),
    }
}

/// Shuts down one direction or both (`rshutdown`).
///
/// # Errors
/// As shutdown(2).
pub fn shutdown(fd: RawFd, how: Shutdown) -> Result<()> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => stream.shutdown(how),
        Socket::Datagram(_) => Ok(()),
    }
}

/// Closes a socket or an epoll set (`rclose`).
///
/// # Errors
/// EBADF, or EBUSY for a set that has members.
pub fn close(fd: RawFd) -> Result<()> {
    if let Some(Entry::Epoll(set)) = descriptors::entry(fd)
        && !set.is_empty()
    {
        return Err(Errno::BUSY);
    }
    match descriptors::remove(fd).ok_or(Errno::BADF)? {
        Entry::Socket(Socket::Stream(stream)) => stream.close(),
        Entry::Socket(Socket::Datagram(datagram)) => datagram.close(),
        Entry::Epoll(_) => {}
    }
    Ok(())
}

/// Returns the peer's address (`rgetpeername`).
///
/// # Errors
/// As getpeername(2).
pub fn peer_address(fd: RawFd) -> Result<SocketAddr> {
    let peer = match descriptors::socket(fd)? {
        Socket::Stream(stream) => stream.id.addresses()?.1,
        Socket::Datagram(datagram) => datagram.addresses()?.1,
    };
    peer.ok_or(Errno::NOTCONN)
}

/// Returns the socket's own address (`rgetsockname`).
///
/// # Errors
/// As getsockname(2).
pub fn local_address(fd: RawFd) -> Result<SocketAddr> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => {
            let any = match stream.family {
                libc::AF_INET6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
                _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
            };
            Ok(stream.id.addresses()?.0.unwrap_or(any))
        }
        Socket::Datagram(datagram) => Ok(datagram.addresses()?.0),
    }
}

/// Receives data (`rrecvfrom`). Returns the number of bytes and the sender's address.
///
/// # Errors
/// As recvfrom(2).
pub fn receive(
    fd: RawFd,
    to: &mut ScatterList<'_>,
    flags: c_int,
) -> Result<(usize, Option<SocketAddr>)> {
    let peeks = flags & libc::MSG_PEEK != 0;
    match descriptors::socket(fd)? {
        Socket::Datagram(datagram) => {
            let (len, from) = datagram.receive(to, datagram.flags.wait(flags), peeks)?;
            Ok((len, Some(from)))
        }
        Socket::Stream(stream) => {
            let wait = stream.flags.wait(flags);
            let fills = flags & libc::MSG_WAITALL != 0;
            let got = stream.connected(wait)?.receive(to, wait, peeks, fills)?;
            let peer = if got > 0 { stream.id.addresses()?.1 } else { None };
            Ok((got, peer))
        }
    }
}

/// Sends data (`rsendto`). Returns the number of bytes.
///
/// # Errors
/// As sendto(2).
pub fn send(fd: RawFd, pieces: &[&[u8]], flags: c_int, to: Option<SocketAddr>) -> Result<usize> {
    let pieces = GatherList::new(pieces);
    match descriptors::socket(fd)? {
        Socket::Stream(_) if to.is_some() => Err(Errno::ISCONN),
        Socket::Stream(stream) => {
            let wait = stream.flags.wait(flags);
            stream.connected(wait)?.send(&pieces, wait)
        }
        Socket::Datagram(datagram) => datagram.send(&pieces, to, datagram.flags.wait(flags)),
    }
}

/// Maps memory for the peer (`riomap`). Returns the offset that the peer uses for the memory.
/// `register` registers the memory with the given access flags.
///
/// # Errors
/// EINVAL for another protection, EAGAIN for a non-blocking socket that is not connected yet,
/// ENOMEM if the peer's list has no room, or an error of `register`.
pub fn map(
    fd: RawFd,
    request: &MapRequest,
    register: impl FnOnce(&Memory, PdId, Access) -> std::result::Result<Mr, RegMrError>,
) -> Result<u64> {
    let stream = stream(fd)?;
    if !matches!(request.prot, libc::PROT_NONE | libc::PROT_WRITE) {
        return Err(Errno::INVAL);
    }
    stream.connected(stream.flags.wait(0))?.map(request, register)
}

/// Unmaps memory (`riounmap`).
///
/// # Errors
/// EINVAL if the memory is not mapped.
pub fn unmap(fd: RawFd, addr: u64, len: usize) -> Result<()> {
    stream(fd)?.connected(Wait::Never)?.unmap(addr, len)
}

/// Writes memory that the peer has mapped (`riowrite`). Returns the number of bytes.
///
/// # Errors
/// As send(2).
pub fn write_mapped(fd: RawFd, piece: &[u8], offset: u64, flags: c_int) -> Result<usize> {
    let stream = stream(fd)?;
    let wait = stream.flags.wait(flags);
    stream.connected(wait)?.write_mapped(&GatherList::new(&[piece]), offset, wait)
}

/// Sets an option (`rsetsockopt`). For a datagram socket, the caller must also set options of
/// levels other than [`SOL_RDMA`](super::SOL_RDMA) on the descriptor.
///
/// # Errors
/// As setsockopt(2).
pub fn set_option(fd: RawFd, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => stream.set_option(level, name, value),
        Socket::Datagram(datagram) => {
            let is_fixed = datagram.is_started();
            let is_known = lock(&datagram.options).set_stored(level, name, value, is_fixed)?;
            if level == super::SOL_RDMA && !is_known { Err(Errno::OPNOTSUPP) } else { Ok(()) }
        }
    }
}

/// Returns an option (`rgetsockopt`). For a datagram socket, the descriptor has the options of
/// levels other than [`SOL_RDMA`](super::SOL_RDMA).
///
/// # Errors
/// As getsockopt(2).
pub fn get_option(fd: RawFd, level: c_int, name: c_int) -> Result<Vec<u8>> {
    match descriptors::socket(fd)? {
        Socket::Stream(stream) => stream.option(level, name),
        Socket::Datagram(datagram) => {
            lock(&datagram.options).get_stored(level, name).ok_or(Errno::OPNOTSUPP)
        }
    }
}

/// Reads or sets flags (`rfcntl`).
///
/// # Errors
/// EOPNOTSUPP for other commands.
pub fn fcntl(fd: RawFd, command: c_int, argument: c_long) -> Result<c_int> {
    let socket = descriptors::socket(fd)?;
    let Flags { status, descriptor } = socket.flags();
    match command {
        libc::F_GETFL => return Ok(status.load(Ordering::Relaxed)),
        libc::F_SETFL => status.store(argument as c_int, Ordering::Relaxed),
        libc::F_GETFD => return Ok(descriptor.load(Ordering::Relaxed)),
        libc::F_SETFD => descriptor.store(argument as c_int, Ordering::Relaxed),
        _ => return Err(Errno::OPNOTSUPP),
    }
    Ok(0)
}

/// Makes an epoll set (`repoll_create`).
///
/// # Errors
/// An error of the system.
pub fn epoll_create() -> Result<RawFd> {
    let set = Epoll::new()?;
    let fd = set.fd();
    descriptors::insert(fd, Entry::Epoll(Arc::new(set)));
    Ok(fd)
}

fn epoll_set(fd: RawFd) -> Result<Arc<Epoll>> {
    match descriptors::entry(fd) {
        Some(Entry::Epoll(set)) => Ok(set),
        _ => Err(Errno::INVAL),
    }
}

/// Adds, changes or removes a member of a set (`repoll_ctl`).
///
/// # Errors
/// As epoll_ctl(2).
pub fn epoll_control(set: RawFd, op: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
    match fd {
        _ if fd < 0 => Err(Errno::BADF),
        _ if fd == set => Err(Errno::INVAL),
        _ => epoll_set(set)?.control(op, fd, event),
    }
}

/// Waits for members of a set (`repoll_wait`). Returns at most `max_events` events.
///
/// # Errors
/// As epoll_wait(2).
pub fn epoll_wait(
    set: RawFd,
    max_events: usize,
    timeout: Option<Duration>,
) -> Result<Vec<epoll_event>> {
    epoll_set(set)?.wait(max_events, timeout)
}
