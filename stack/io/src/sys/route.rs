//! Which way packets leave this host: asked of the system by connecting a datagram socket, which
//! sends nothing.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::SockAddr;

use super::socket;

/// Any port but 0, which some systems refuse to connect to.
const SOME_PORT: u16 = urxe_wire::ROCE_PORT;

/// The address that packets to `to` leave from; `from` if that is given and there is a way.
///
/// # Errors
/// The system's error number, such as ENETUNREACH.
pub fn source_for(from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let socket = socket::udp_for(to, SocketFlags::empty()).map_err(Errno::raw_os_error)?;
    if let Some(from) = from {
        let mut from = SocketAddr::new(from, 0);
        if let (SocketAddr::V6(from), SocketAddr::V6(to)) = (&mut from, to) {
            // A link-local address needs its interface.
            from.set_scope_id(to.scope_id());
        }
        socket.bind(&SockAddr::from(from)).map_err(errno)?;
    }
    let mut to = to;
    to.set_port(SOME_PORT);
    socket.connect(&SockAddr::from(to)).map_err(errno)?;
    let own = socket.local_addr().map_err(errno)?.as_socket();
    own.map(|own| own.ip()).ok_or(libc::EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_from_itself_and_a_wrong_source_is_refused() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(source_for(None, loopback), Ok(loopback.ip()));
        let own: IpAddr = "127.9.8.7".parse().unwrap();
        assert_eq!(source_for(Some(own), loopback), Ok(own));
        // 192.0.2.0/24 is for documentation: no host has an address of it.
        assert_eq!(
            source_for(Some("192.0.2.1".parse().unwrap()), loopback),
            Err(libc::EADDRNOTAVAIL)
        );
    }
}
