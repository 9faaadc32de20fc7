//! Socket addresses in the kernel's layout: `struct sockaddr_in` and `struct sockaddr_in6` (ip(7),
//! ipv6(7)).
//!
//! An address is built once for a peer or a call, as bytes, so no pointer is needed.
#![deny(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Size of `struct sockaddr_in6`, the larger of the two.
const CAPACITY: usize = 28;
/// Size of `struct sockaddr_in`.
const V4_LENGTH: usize = 16;

/// An IPv4 or IPv6 socket address in the kernel's layout, or a buffer for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct RawAddress {
    bytes: [u8; CAPACITY],
    length: u32,
}

impl RawAddress {
    /// A buffer for the kernel to write an address to.
    pub const EMPTY: Self = Self { bytes: [0; CAPACITY], length: CAPACITY as u32 };

    /// Lays out `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let mut raw = Self::EMPTY;
        raw.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                raw.bytes[0..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                raw.bytes[4..8].copy_from_slice(&v4.ip().octets());
                raw.length = V4_LENGTH as u32;
            }
            SocketAddr::V6(v6) => {
                raw.bytes[0..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                raw.bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                raw.bytes[8..24].copy_from_slice(&v6.ip().octets());
                raw.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        raw
    }

    /// Parses the address at the start of `bytes`; `None` if there is no complete IPv4 or IPv6
    /// address.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
        let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        if family == libc::AF_INET && bytes.len() >= V4_LENGTH {
            let octets: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(octets), port)))
        } else if family == libc::AF_INET6 && bytes.len() >= CAPACITY {
            let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
            let octets: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
            Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope)))
        } else {
            None
        }
    }

    /// Parses the address that the kernel wrote; `None` if it is no complete IPv4 or IPv6 address.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        Self::parse(self.as_bytes())
    }

    /// Parses the address and returns it without its port.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.socket_address().map(|address| address.ip())
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..(self.length as usize).min(CAPACITY)]
    }

    /// Returns the whole buffer for the kernel to write to. The caller passes the used length to
    /// [`set_length`](Self::set_length).
    pub(super) fn buffer_mut(&mut self) -> &mut [u8; CAPACITY] {
        &mut self.bytes
    }

    /// Records that the kernel wrote `length` bytes, which may exceed the buffer.
    pub(super) fn set_length(&mut self, length: u32) {
        self.length = length.min(CAPACITY as u32);
    }
}

#[cfg(test)]
mod tests;
