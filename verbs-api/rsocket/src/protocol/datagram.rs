//! SOCK_DGRAM: the UDP messages by which queue pairs find each other, and the header of each
//! datagram with the sender's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The first word of a UDP message.
const TAG: u32 = 0x5555_5555;
const UDP_V4: usize = 16;
const UDP_V6: usize = 28;
const V4: usize = 8;
const V6: usize = 24;

/// Returns the header of a datagram (`struct ds_header`) with the sender's address.
pub fn header(from: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(V6);
    match from {
        SocketAddr::V4(from) => {
            bytes.extend_from_slice(&[4, V4 as u8]);
            bytes.extend_from_slice(&from.port().to_be_bytes());
            bytes.extend_from_slice(&from.ip().octets());
        }
        SocketAddr::V6(from) => {
            bytes.extend_from_slice(&[6, V6 as u8]);
            bytes.extend_from_slice(&from.port().to_be_bytes());
            bytes.extend_from_slice(&from.flowinfo().to_be_bytes());
            bytes.extend_from_slice(&from.ip().octets());
        }
    }
    bytes
}

/// Returns the sender's address, and the offset of the data.
pub fn parse_header(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match *bytes.first_chunk()? {
        [4, length] if usize::from(length) == V4 => {
            let address: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some((SocketAddrV4::new(Ipv4Addr::from(address), port).into(), V4))
        }
        [6, length] if usize::from(length) == V6 => {
            let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
            let address: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Some((SocketAddrV6::new(Ipv6Addr::from(address), port, flow, 0).into(), V6))
        }
        _ => None,
    }
}

/// The purpose of a UDP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpOp {
    /// The message carries a datagram, because the peer's queue pair is unknown.
    Data,
    /// The message answers with the number of the queue pair.
    Control,
}

/// A UDP message (`struct ds_udp_header`) without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    pub op: UdpOp,
    /// The sender's queue pair.
    pub qpn: u32,
    /// The sender's address.
    pub from: IpAddr,
}

impl UdpHeader {
    pub fn to_bytes(self) -> Vec<u8> {
        let (version, length) = if self.from.is_ipv4() { (4, UDP_V4) } else { (6, UDP_V6) };
        let op = match self.op {
            UdpOp::Data => 0,
            UdpOp::Control => 7,
        };
        let mut bytes = Vec::with_capacity(UDP_V6);
        bytes.extend_from_slice(&TAG.to_be_bytes());
        bytes.extend_from_slice(&[version, op, length as u8, 0]);
        bytes.extend_from_slice(&self.qpn.to_be_bytes());
        match self.from {
            IpAddr::V4(from) => bytes.extend_from_slice(&from.octets()),
            IpAddr::V6(from) => bytes.extend_from_slice(&from.octets()),
        }
        bytes
    }

    /// Parses a message. Returns the message and the offset of its data. Operations other than data
    /// carry only the queue pair number.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let tag = u32::from_be_bytes(*bytes.first_chunk()?);
        let [version, op, length, _] = *bytes.get(4..)?.first_chunk()?;
        let qpn = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?) & 0xff_ffff;
        let behind = bytes.get(12..)?;
        let (from, used) = match (version, usize::from(length)) {
            (4, UDP_V4) => (IpAddr::from(*behind.first_chunk::<4>()?), UDP_V4),
            (6, UDP_V6) => (IpAddr::from(*behind.first_chunk::<16>()?), UDP_V6),
            _ => return None,
        };
        let op = if op == 0 { UdpOp::Data } else { UdpOp::Control };
        (tag == TAG).then_some((Self { op, qpn, from }, used))
    }
}
