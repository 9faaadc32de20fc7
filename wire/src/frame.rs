//! Whole frames, from Ethernet to the ICRC, for captures and decoders.
//!
//! The data path uses UDP sockets and never handles a frame. A frame contains the real IP header,
//! so [`Frame::icrc`] can compute the ICRC exactly as the specification describes: mask a copy,
//! then run one CRC. The tests of [`crate::IcrcSeed`] compare against this.
//!
//! ```text
//! | Ethernet 14 | 0 to 2 VLAN tags, 4 each | IPv4 20 or IPv6 40 | UDP 8 | UDP payload | padding |
//! ```
//!
//! Programs build frames for captures. Tools also parse them (feature `decode`), by pnet_packet,
//! whose layouts the tests compare with those that are built here. RoCEv2 uses no fragments, IPv4
//! options or IPv6 extension headers, so these are errors.

use std::net::{IpAddr, SocketAddr};

use crate::Gid;
use crate::bytes::put;
use crate::grh::Grh;
use crate::network_header::{folded, sum};

#[cfg(feature = "decode")]
pub use self::parse::Frame;

#[cfg(feature = "decode")]
mod parse;

const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const MAX_VLAN_TAGS: usize = 2;
const UDP_PROTOCOL: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;

/// The reason why bytes are not a frame with a UDP datagram, or why a frame cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum FrameError {
    /// The bytes end within a header.
    #[error("the frame ends within its {header} header: {have} bytes of {need}")]
    ShortHeader { header: FrameHeader, need: usize, have: usize },
    /// The ethertype is neither IPv4 nor IPv6.
    #[error("ethertype {0:#06x} is not IP")]
    NotIp(u16),
    /// There are more than two VLAN tags.
    #[error("more than {MAX_VLAN_TAGS} VLAN tags")]
    TooManyVlanTags,
    /// The IP version is neither 4 nor 6, or does not match the ethertype.
    #[error("IP version {0} is not valid")]
    BadIpVersion(u8),
    /// The IPv4 header is not five words long. Longer headers contain options.
    #[error("an IPv4 header of {0} words is not valid: RoCEv2 has no options")]
    BadIpv4HeaderLength(u8),
    /// The IPv4 datagram is a fragment.
    #[error("fragment of an IPv4 datagram at offset {offset}")]
    Fragment { offset: u32 },
    /// The IP protocol is not UDP, or the packet has an IPv6 extension header.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// The IP header states more bytes than the capture has.
    #[error("the IP header states {need} bytes, but there are {have}")]
    Truncated { need: usize, have: usize },
    /// The lengths in IP and UDP headers disagree.
    #[error("the UDP header states {udp} bytes, but the IP header leaves {ip}")]
    LengthMismatch { udp: usize, ip: usize },
    /// The addresses of a frame to build have different IP versions, or not that of the IP fields.
    #[error("the addresses and the IP fields have different IP versions")]
    MixedFamilies,
    /// The payload of a frame to build does not fit in an IP datagram.
    #[error("{0} bytes do not fit in a UDP datagram")]
    PayloadTooLong(usize),
}

crate::named_enum! {
    /// A header in front of the packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub enum FrameHeader: name {
        Ethernet => "Ethernet",
        Vlan => "VLAN",
        Ip => "IP",
        Ipv4 => "IPv4",
        Ipv6 => "IPv6",
        Udp => "UDP",
    }
}

/// The Ethernet header of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkRepr {
    /// Source address.
    pub src: [u8; 6],
    /// Destination address.
    pub dst: [u8; 6],
    /// VLAN tags (TPID, TCI), outermost first, at most two.
    pub vlan: Vec<(u16, u16)>,
}

/// The fields of an IP header, except addresses, lengths and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpRepr {
    /// IPv4.
    V4 {
        /// DSCP and ECN.
        tos: u8,
        /// Identification, covered by the ICRC.
        identification: u16,
        /// DF flag, covered by the ICRC.
        dont_fragment: bool,
        /// Time to live.
        ttl: u8,
    },
    /// IPv6.
    V6 {
        /// DSCP and ECN.
        traffic_class: u8,
        /// Flow label, 20 bits.
        flow_label: u32,
        /// Hop limit.
        hop_limit: u8,
    },
}

/// Everything in front of the UDP payload of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRepr {
    /// The Ethernet header, or `None` in a capture that starts with the IP header.
    pub link: Option<LinkRepr>,
    /// IP fields, of the same IP version as the addresses.
    pub ip: IpRepr,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// Whether the UDP checksum is present. `rdma_rxe` omits the checksum (0) over IPv4.
    pub udp_checksum: bool,
}

impl FrameRepr {
    /// Returns the headers of a frame as a UDP socket of this stack sends them: identification 0,
    /// DF, TTL 64, zero Ethernet addresses.
    #[must_use]
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        let ip = match src.ip() {
            IpAddr::V4(_) => IpRepr::V4 { tos: 0, identification: 0, dont_fragment: true, ttl: 64 },
            IpAddr::V6(_) => IpRepr::V6 { traffic_class: 0, flow_label: 0, hop_limit: 64 },
        };
        Self { link: Some(LinkRepr::default()), ip, src, dst, udp_checksum: true }
    }

    /// Builds the frame around a UDP payload, including checksums.
    ///
    /// # Errors
    /// - [`FrameError::MixedFamilies`]: the addresses and the IP fields have different IP versions.
    /// - [`FrameError::PayloadTooLong`]: the payload does not fit in an IP datagram.
    /// - [`FrameError::TooManyVlanTags`]: there are more than two VLAN tags.
    pub fn build(&self, udp_payload: &[u8]) -> Result<Vec<u8>, FrameError> {
        let udp_len = udp_payload.len() + UDP_LEN;
        let ip_header_len = match self.ip {
            IpRepr::V4 { .. } => IPV4_LEN,
            IpRepr::V6 { .. } => IPV6_LEN,
        };
        if udp_len + IPV4_LEN > usize::from(u16::MAX) {
            return Err(FrameError::PayloadTooLong(udp_payload.len()));
        }
        let link_len = match &self.link {
            Some(link) if link.vlan.len() > MAX_VLAN_TAGS => {
                return Err(FrameError::TooManyVlanTags);
            }
            Some(link) => ETHERNET_LEN + VLAN_LEN * link.vlan.len(),
            None => 0,
        };
        let mut bytes = vec![0; link_len + ip_header_len + udp_len];
        let (link_bytes, datagram) = bytes.split_at_mut(link_len);
        let (ip_bytes, udp_bytes) = datagram.split_at_mut(ip_header_len);
        udp_bytes[UDP_LEN..].copy_from_slice(udp_payload);
        self.emit_udp(udp_bytes)?;
        self.emit_ip(ip_bytes, udp_len)?;
        self.emit_link(link_bytes);
        Ok(bytes)
    }

    fn emit_udp(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let len = bytes.len() as u16;
        put(bytes, 0, self.src.port().to_be_bytes());
        put(bytes, 2, self.dst.port().to_be_bytes());
        put(bytes, 4, len.to_be_bytes());
        let addresses = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => sum(&src.octets()) + sum(&dst.octets()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => sum(&src.octets()) + sum(&dst.octets()),
            _ => return Err(FrameError::MixedFamilies),
        };
        if self.udp_checksum {
            // The pseudo header has the addresses, the protocol and the length.
            let all = addresses + u32::from(UDP_PROTOCOL) + u32::from(len) + sum(bytes);
            // A checksum of zero is sent as 0xffff, because zero means "no checksum" (RFC 768).
            let checksum = match !folded(all) {
                0 => 0xffff,
                checksum => checksum,
            };
            put(bytes, 6, checksum.to_be_bytes());
        }
        Ok(())
    }

    fn emit_ip(&self, bytes: &mut [u8], udp_len: usize) -> Result<(), FrameError> {
        match (self.ip, self.src.ip(), self.dst.ip()) {
            (
                IpRepr::V4 { tos, identification, dont_fragment, ttl },
                IpAddr::V4(src),
                IpAddr::V4(dst),
            ) => {
                put(bytes, 0, [0x45, tos]);
                put(bytes, 2, ((IPV4_LEN + udp_len) as u16).to_be_bytes());
                put(bytes, 4, identification.to_be_bytes());
                put(bytes, 6, (if dont_fragment { DONT_FRAGMENT } else { 0 }).to_be_bytes());
                put(bytes, 8, [ttl, UDP_PROTOCOL, 0, 0]);
                put(bytes, 12, src.octets());
                put(bytes, 16, dst.octets());
                let checksum = !folded(sum(bytes));
                put(bytes, 10, checksum.to_be_bytes());
            }
            (
                IpRepr::V6 { traffic_class, flow_label, hop_limit },
                IpAddr::V6(src),
                IpAddr::V6(dst),
            ) => {
                let header = Grh {
                    traffic_class,
                    flow_label,
                    payload_len: udp_len as u16,
                    next_header: UDP_PROTOCOL,
                    hop_limit,
                    sgid: Gid(src.octets()),
                    dgid: Gid(dst.octets()),
                };
                let mut emitted = [0; Grh::LEN];
                header.emit(&mut emitted);
                bytes.copy_from_slice(&emitted);
            }
            _ => return Err(FrameError::MixedFamilies),
        }
        Ok(())
    }

    fn emit_link(&self, bytes: &mut [u8]) {
        let Some(link) = &self.link else { return };
        put(bytes, 0, link.dst);
        put(bytes, 6, link.src);
        // Every header names the next one: first the TPIDs of the tags, then IP.
        let mut at = 12;
        for &(tpid, tci) in &link.vlan {
            put(bytes, at, tpid.to_be_bytes());
            put(bytes, at + 2, tci.to_be_bytes());
            at += VLAN_LEN;
        }
        let ip_type: u16 = match self.ip {
            IpRepr::V4 { .. } => 0x0800,
            IpRepr::V6 { .. } => 0x86dd,
        };
        put(bytes, at, ip_type.to_be_bytes());
    }
}

#[cfg(all(test, feature = "decode"))]
mod tests;
