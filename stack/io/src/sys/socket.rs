//! Sockets that are nobody else's.

use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use socket2::Socket;

/// A UDP socket of an address's family, close-on-exec, with further `flags`.
///
/// It is made by the system call itself: the C library's `socket` may be one of a preloaded library
/// that makes something else of it, as librspreload makes an rsocket, which would stand on the very
/// device that the socket is for.
///
/// # Errors
/// The system's.
pub fn udp_for(address: SocketAddr, flags: SocketFlags) -> Result<Socket, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let made =
        socket_with(family, SocketType::DGRAM, flags | SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    Ok(Socket::from(made))
}
