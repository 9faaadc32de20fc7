//! The queries of connections to the host system.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::SockAddr;
use urxe_wire::ROCE_PORT;

use crate::cma::System;
use crate::link::default_address;
use crate::link::interface::interfaces;
use crate::sys::socket;

/// The host system.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl System for Host {
    /// Connects a datagram socket to find the source address. Nothing is sent.
    fn source_for(&self, from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32> {
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
        // Any port except 0, which some systems refuse to connect to.
        to.set_port(ROCE_PORT);
        socket.connect(&SockAddr::from(to)).map_err(errno)?;
        let own = socket.local_addr().map_err(errno)?.as_socket();
        own.map(|own| own.ip()).ok_or(libc::EAFNOSUPPORT)
    }

    fn interface_of(&self, address: IpAddr) -> Option<u32> {
        let all = interfaces().unwrap_or_default();
        all.iter().find(|interface| interface.has(address)).map(|interface| interface.index)
    }

    fn localhost(&self) -> Option<IpAddr> {
        default_address::localhost().map(IpAddr::V4)
    }

    fn binds_v6_only(&self) -> bool {
        std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only")
            .is_ok_and(|value| value.trim() == "1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_from_itself_and_a_wrong_source_is_refused() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(Host.source_for(None, loopback), Ok(loopback.ip()));
        let own: IpAddr = "127.9.8.7".parse().unwrap();
        assert_eq!(Host.source_for(Some(own), loopback), Ok(own));
        // 192.0.2.0/24 is for documentation: no host has an address of it.
        assert_eq!(
            Host.source_for(Some("192.0.2.1".parse().unwrap()), loopback),
            Err(libc::EADDRNOTAVAIL)
        );
    }
}
