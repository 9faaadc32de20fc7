//! Finds the frame in a captured record, for the link types that RoCEv2 is captured on.
//!
//! | LINKTYPE | bytes before the IP packet |
//! |---|---|
//! | 1 Ethernet | two addresses, VLAN tags, EtherType |
//! | 113 Linux cooked (SLL), 276 (SLL2): `-i any` | 16 or 20 bytes with the EtherType |
//! | 12, 14, 101, 228, 229 raw IP | none |
//! | 0, 108 loopback of BSD | four bytes with the address family |

use std::fmt;

use urxe_wire::frame::{Frame, FrameError};

#[cfg(test)]
mod tests;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Reasons why a record holds no UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUdp {
    /// The frame holds another protocol, or is damaged.
    Frame(FrameError),
    /// The record is shorter than its link's header.
    Short {
        /// Bytes captured.
        have: usize,
    },
    /// An unsupported link type.
    LinkType(u32),
}

impl NotUdp {
    /// Returns whether this is another protocol, and not something damaged.
    #[must_use]
    pub fn is_other_protocol(&self) -> bool {
        use FrameError::{Fragment, NotIp, NotUdp};
        matches!(self, Self::LinkType(_) | Self::Frame(NotIp(_) | NotUdp(_) | Fragment { .. }))
    }
}

impl fmt::Display for NotUdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(FrameError::NotIp(ethertype)) => match ethertype {
                0x0806 => f.write_str("ARP"),
                0x88cc => f.write_str("LLDP"),
                0x8915 => f.write_str("RoCE v1 (straight over Ethernet)"),
                0x8906 => f.write_str("FCoE"),
                0..0x0600 => write!(f, "802.3 frame of length {ethertype}"),
                other => write!(f, "EtherType {other:#06x}"),
            },
            Self::Frame(FrameError::NotUdp(protocol)) => match protocol {
                0 => f.write_str("IPv6 with hop-by-hop options"),
                1 => f.write_str("ICMP"),
                2 => f.write_str("IGMP"),
                6 => f.write_str("TCP"),
                47 => f.write_str("GRE"),
                50 => f.write_str("ESP"),
                58 => f.write_str("ICMPv6"),
                132 => f.write_str("SCTP"),
                other => write!(f, "IP protocol {other}"),
            },
            Self::Frame(error) => error.fmt(f),
            Self::Short { have } => write!(f, "{have} bytes are less than the link's header"),
            Self::LinkType(number) => write!(f, "link type {number} is not understood"),
        }
    }
}

/// Parses the record's bytes up to the UDP payload.
///
/// # Errors
/// [`NotUdp`]: the record holds another protocol, is damaged, or has an unknown link type.
pub fn parse(link_type: u32, bytes: &[u8]) -> Result<Frame<'_>, NotUdp> {
    let short = NotUdp::Short { have: bytes.len() };
    let packet = match link_type {
        1 => return Frame::parse(bytes).map_err(NotUdp::Frame),
        12 | 14 | 101 | 228 | 229 => bytes,
        0 | 108 => bytes.get(4..).ok_or(short)?,
        113 => cooked(bytes, 14, 16)?,
        276 => cooked(bytes, 0, 20)?,
        other => return Err(NotUdp::LinkType(other)),
    };
    Frame::parse_ip(packet).map_err(NotUdp::Frame)
}

/// Returns the packet behind a cooked header of `header_len` bytes with the EtherType at
/// `protocol_at`.
fn cooked(bytes: &[u8], protocol_at: usize, header_len: usize) -> Result<&[u8], NotUdp> {
    let short = NotUdp::Short { have: bytes.len() };
    let packet = bytes.get(header_len..).ok_or(short)?;
    let ethertype = bytes.get(protocol_at..).and_then(<[u8]>::first_chunk).ok_or(short)?;
    match u16::from_be_bytes(*ethertype) {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Ok(packet),
        other => Err(NotUdp::Frame(FrameError::NotIp(other))),
    }
}
