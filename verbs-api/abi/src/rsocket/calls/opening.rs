//! Sockets from their making to their end, and their names.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use super::{given, put_address, stream, system};
use crate::logging;
use crate::rsocket::answer::answer;
use crate::rsocket::datagram::Datagram;
use crate::rsocket::protocol::stream::Shut;
use crate::rsocket::stream::Stream;
use crate::rsocket::table::{self, Entry, Socket};

/// Flags that a type may carry.
const TYPE_FLAGS: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// `rsocket`
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    logging::start();
    answer("rsocket", || {
        let is_ip = matches!(domain, libc::AF_INET | libc::AF_INET6);
        let status = if kind & libc::SOCK_NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 };
        let of_fd = if kind & libc::SOCK_CLOEXEC != 0 { libc::FD_CLOEXEC } else { 0 };
        match (kind & !TYPE_FLAGS, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) if is_ip => {
                let stream = Stream::new(domain)?;
                stream.status_flags.store(status, Ordering::Relaxed);
                stream.fd_flags.store(of_fd, Ordering::Relaxed);
                let fd = stream.fd;
                table::insert(fd, Entry::Stream(stream));
                Ok(fd)
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) if is_ip => {
                let datagram = Datagram::new(domain)?;
                datagram.status_flags.store(status, Ordering::Relaxed);
                datagram.fd_flags.store(of_fd, Ordering::Relaxed);
                let fd = datagram.fd();
                table::insert(fd, Entry::Datagram(datagram));
                Ok(fd)
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    })
}

/// `rbind`
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    answer("rbind", || {
        // SAFETY: the ABI's contract.
        unsafe { given(addr, len) }?;
        match table::socket(fd)? {
            // SAFETY: the address was found whole.
            Socket::Stream(stream) => stream.bind(unsafe { &*addr })?,
            Socket::Datagram(datagram) => {
                datagram.begin()?;
                // SAFETY: as above.
                system(unsafe { libc::bind(fd, addr, len) })?;
            }
        }
        Ok(0)
    })
}

/// `rlisten`
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    answer("rlisten", || stream(fd)?.listen(backlog).map(|()| 0))
}

/// `raccept`
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    answer("raccept", || {
        let listener = stream(fd)?;
        let (made, number) = listener.accept(listener.wait(0))?;
        if let (_, Some(peer)) = made.addresses()?
            && !addr.is_null()
        {
            // SAFETY: the ABI's contract.
            unsafe { put_address(peer, addr, len) };
        }
        Ok(number)
    })
}

/// `rconnect`
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    answer("rconnect", || {
        // SAFETY: the ABI's contract.
        let to = unsafe { given(addr, len) }?;
        match table::socket(fd)? {
            Socket::Stream(stream) => stream.connect(to, stream.wait(0))?,
            Socket::Datagram(datagram) => datagram.connect(to)?,
        }
        Ok(0)
    })
}

/// `rshutdown`
pub extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    answer("rshutdown", || {
        let how = match how {
            libc::SHUT_RD => Shut::Read,
            libc::SHUT_WR => Shut::Write,
            libc::SHUT_RDWR => Shut::Both,
            _ => return Err(Errno::INVAL),
        };
        if let Socket::Stream(stream) = table::socket(fd)? {
            stream.shut(how)?;
        }
        Ok(0)
    })
}

/// `rclose`
pub extern "C" fn close(fd: c_int) -> c_int {
    answer("rclose", || {
        if let Some(Entry::Epoll(set)) = table::entry(fd)
            && !set.is_empty()
        {
            return Err(Errno::BUSY);
        }
        match table::remove(fd).ok_or(Errno::BADF)? {
            Entry::Stream(stream) => stream.close(),
            Entry::Datagram(datagram) => datagram.close(),
            Entry::Epoll(_) => {}
        }
        Ok(0)
    })
}

/// `rgetpeername`
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    answer("rgetpeername", || {
        let peer = match table::socket(fd)? {
            Socket::Stream(stream) => stream.addresses()?.1,
            Socket::Datagram(datagram) => datagram.addresses()?.1,
        };
        // SAFETY: the ABI's contract.
        unsafe { put_address(peer.ok_or(Errno::NOTCONN)?, addr, len) };
        Ok(0)
    })
}

/// `rgetsockname`
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    answer("rgetsockname", || {
        let own = match table::socket(fd)? {
            Socket::Stream(stream) => {
                stream.addresses()?.0.unwrap_or_else(|| match stream.family {
                    libc::AF_INET6 => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
                    _ => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
                })
            }
            Socket::Datagram(datagram) => datagram.addresses()?.0,
        };
        // SAFETY: the ABI's contract.
        unsafe { put_address(own, addr, len) };
        Ok(0)
    })
}
