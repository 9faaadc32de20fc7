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
//! pnet_packet defines the layouts of the headers. RoCEv2 uses no fragments, IPv4 options or IPv6
//! extension headers, so these are errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pnet_packet::ethernet::{EtherType, EtherTypes, EthernetPacket, MutableEthernetPacket};
use pnet_packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet_packet::ipv4::{self, Ipv4Flags, Ipv4Packet, MutableIpv4Packet};
use pnet_packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet_packet::udp::{self, MutableUdpPacket, UdpPacket};
use pnet_packet::vlan::{ClassOfService, MutableVlanPacket, VlanPacket};

use crate::Opcode;
use crate::packet::ICRC_LEN;

const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const MAX_VLAN_TAGS: usize = 2;

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
        let Some(mut udp) = MutableUdpPacket::new(bytes) else { return Ok(()) };
        udp.set_source(self.src.port());
        udp.set_destination(self.dst.port());
        udp.set_length(len);
        let sum = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                udp::ipv4_checksum(&udp.to_immutable(), &src, &dst)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                udp::ipv6_checksum(&udp.to_immutable(), &src, &dst)
            }
            _ => return Err(FrameError::MixedFamilies),
        };
        if self.udp_checksum {
            // A checksum of zero is sent as 0xffff, because zero means "no checksum" (RFC 768).
            udp.set_checksum(if sum == 0 { 0xffff } else { sum });
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
                let Some(mut ip) = MutableIpv4Packet::new(bytes) else { return Ok(()) };
                ip.set_version(4);
                ip.set_header_length(5);
                ip.set_dscp(tos >> 2);
                ip.set_ecn(tos & 3);
                ip.set_total_length((IPV4_LEN + udp_len) as u16);
                ip.set_identification(identification);
                ip.set_flags(if dont_fragment { Ipv4Flags::DontFragment } else { 0 });
                ip.set_ttl(ttl);
                ip.set_next_level_protocol(IpNextHeaderProtocols::Udp);
                ip.set_source(src);
                ip.set_destination(dst);
                let sum = ipv4::checksum(&ip.to_immutable());
                ip.set_checksum(sum);
            }
            (
                IpRepr::V6 { traffic_class, flow_label, hop_limit },
                IpAddr::V6(src),
                IpAddr::V6(dst),
            ) => {
                let Some(mut ip) = MutableIpv6Packet::new(bytes) else { return Ok(()) };
                ip.set_version(6);
                ip.set_traffic_class(traffic_class);
                ip.set_flow_label(flow_label & 0x000f_ffff);
                ip.set_payload_length(udp_len as u16);
                ip.set_next_header(IpNextHeaderProtocols::Udp);
                ip.set_hop_limit(hop_limit);
                ip.set_source(src);
                ip.set_destination(dst);
            }
            _ => return Err(FrameError::MixedFamilies),
        }
        Ok(())
    }

    fn emit_link(&self, mut bytes: &mut [u8]) {
        let Some(link) = &self.link else { return };
        let ip_type = match self.ip {
            IpRepr::V4 { .. } => EtherTypes::Ipv4,
            IpRepr::V6 { .. } => EtherTypes::Ipv6,
        };
        // Every header names the next one: first the TPIDs of the tags, then IP.
        let mut following = link.vlan.iter().map(|&(tpid, _)| EtherType(tpid)).chain([ip_type]);
        let mut next_type = || following.next().unwrap_or(ip_type);
        if let Some(mut ethernet) = MutableEthernetPacket::new(bytes) {
            ethernet.set_source(link.src.into());
            ethernet.set_destination(link.dst.into());
            ethernet.set_ethertype(next_type());
        }
        bytes = &mut bytes[ETHERNET_LEN..];
        for (&(_, tci), bytes) in link.vlan.iter().zip(bytes.chunks_exact_mut(VLAN_LEN)) {
            if let Some(mut vlan) = MutableVlanPacket::new(bytes) {
                vlan.set_priority_code_point(ClassOfService((tci >> 13) as u8));
                vlan.set_drop_eligible_indicator((tci >> 12) as u8 & 1);
                vlan.set_vlan_identifier(tci & 0x0fff);
                vlan.set_ethertype(next_type());
            }
        }
    }
}

/// A captured frame, parsed down to its UDP payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Everything in front of the UDP payload.
    pub repr: FrameRepr,
    /// The UDP payload: a packet from BTH to ICRC if the port is [`crate::ROCE_PORT`].
    pub udp_payload: &'a [u8],
    /// The bytes from the IP header to the end of the UDP payload.
    datagram: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses an Ethernet frame. Bytes after the IP datagram (Ethernet padding) are ignored.
    ///
    /// # Errors
    /// Fails with any variant of [`FrameError`] except `MixedFamilies` and `PayloadTooLong`.
    /// Checksums are not verified, because a capture on the sender shows frames before the adapter
    /// adds the checksums.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let short = |header, need, have| FrameError::ShortHeader { header, need, have };
        let ethernet = EthernetPacket::new(bytes).ok_or(short(
            FrameHeader::Ethernet,
            ETHERNET_LEN,
            bytes.len(),
        ))?;
        let mut link = LinkRepr {
            src: ethernet.get_source().octets(),
            dst: ethernet.get_destination().octets(),
            vlan: Vec::new(),
        };
        let mut ether_type = ethernet.get_ethertype();
        let mut rest = &bytes[ETHERNET_LEN..];
        while matches!(ether_type, EtherTypes::Vlan | EtherTypes::PBridge | EtherTypes::QinQ) {
            if link.vlan.len() == MAX_VLAN_TAGS {
                return Err(FrameError::TooManyVlanTags);
            }
            let vlan =
                VlanPacket::new(rest).ok_or(short(FrameHeader::Vlan, VLAN_LEN, rest.len()))?;
            let tci = u16::from(vlan.get_priority_code_point().0) << 13
                | u16::from(vlan.get_drop_eligible_indicator()) << 12
                | vlan.get_vlan_identifier();
            link.vlan.push((ether_type.0, tci));
            ether_type = vlan.get_ethertype();
            rest = &rest[VLAN_LEN..];
        }
        let version = match ether_type {
            EtherTypes::Ipv4 => 4,
            EtherTypes::Ipv6 => 6,
            EtherType(other) => return Err(FrameError::NotIp(other)),
        };
        let mut frame = Self::parse_ip(rest)?;
        if frame.datagram[0] >> 4 != version {
            return Err(FrameError::BadIpVersion(frame.datagram[0] >> 4));
        }
        frame.repr.link = Some(link);
        Ok(frame)
    }

    /// Parses a datagram that starts with the IP header, as in captures of link type "raw".
    ///
    /// # Errors
    /// Fails like [`Frame::parse`].
    pub fn parse_ip(bytes: &'a [u8]) -> Result<Self, FrameError> {
        match bytes.first() {
            None => Err(FrameError::ShortHeader { header: FrameHeader::Ip, need: 1, have: 0 }),
            Some(first) if first >> 4 == 4 => Self::parse_ipv4(bytes),
            Some(first) if first >> 4 == 6 => Self::parse_ipv6(bytes),
            Some(first) => Err(FrameError::BadIpVersion(first >> 4)),
        }
    }

    fn parse_ipv4(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let have = bytes.len();
        let ip = Ipv4Packet::new(bytes).ok_or(FrameError::ShortHeader {
            header: FrameHeader::Ipv4,
            need: IPV4_LEN,
            have,
        })?;
        if ip.get_header_length() != 5 {
            return Err(FrameError::BadIpv4HeaderLength(ip.get_header_length()));
        }
        let flags = ip.get_flags();
        let offset = u32::from(ip.get_fragment_offset()) * 8;
        if offset != 0 || flags & Ipv4Flags::MoreFragments != 0 {
            return Err(FrameError::Fragment { offset });
        }
        let repr = IpRepr::V4 {
            tos: ip.get_dscp() << 2 | ip.get_ecn(),
            identification: ip.get_identification(),
            dont_fragment: flags & Ipv4Flags::DontFragment != 0,
            ttl: ip.get_ttl(),
        };
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (ip.get_source(), ip.get_destination());
        let need = usize::from(ip.get_total_length());
        let datagram = bytes.get(..need).ok_or(FrameError::Truncated { need, have })?;
        Self::parse_udp(
            datagram,
            IPV4_LEN,
            ip.get_next_level_protocol(),
            repr,
            src.into(),
            dst.into(),
        )
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let have = bytes.len();
        let ip = Ipv6Packet::new(bytes).ok_or(FrameError::ShortHeader {
            header: FrameHeader::Ipv6,
            need: IPV6_LEN,
            have,
        })?;
        let repr = IpRepr::V6 {
            traffic_class: ip.get_traffic_class(),
            flow_label: ip.get_flow_label(),
            hop_limit: ip.get_hop_limit(),
        };
        let (src, dst): (Ipv6Addr, Ipv6Addr) = (ip.get_source(), ip.get_destination());
        let need = IPV6_LEN + usize::from(ip.get_payload_length());
        let datagram = bytes.get(..need).ok_or(FrameError::Truncated { need, have })?;
        Self::parse_udp(datagram, IPV6_LEN, ip.get_next_header(), repr, src.into(), dst.into())
    }

    fn parse_udp(
        datagram: &'a [u8],
        ip_len: usize,
        protocol: IpNextHeaderProtocol,
        ip: IpRepr,
        src: IpAddr,
        dst: IpAddr,
    ) -> Result<Self, FrameError> {
        if protocol != IpNextHeaderProtocols::Udp {
            return Err(FrameError::NotUdp(protocol.0));
        }
        // An IPv4 total length below the header length leaves no bytes.
        let bytes = datagram.get(ip_len..).unwrap_or_default();
        let udp = UdpPacket::new(bytes).ok_or(FrameError::ShortHeader {
            header: FrameHeader::Udp,
            need: UDP_LEN,
            have: bytes.len(),
        })?;
        if usize::from(udp.get_length()) != bytes.len() {
            return Err(FrameError::LengthMismatch {
                udp: udp.get_length().into(),
                ip: bytes.len(),
            });
        }
        let repr = FrameRepr {
            link: None,
            ip,
            src: SocketAddr::new(src, udp.get_source()),
            dst: SocketAddr::new(dst, udp.get_destination()),
            udp_checksum: udp.get_checksum() != 0,
        };
        Ok(Self { repr, udp_payload: &bytes[UDP_LEN..], datagram })
    }

    /// Returns the correct ICRC of this frame, computed from its headers, or `None` if the payload
    /// is too short for a BTH and an ICRC.
    #[must_use]
    pub fn icrc(&self) -> Option<u32> {
        Some(self.icrc_hasher()?.finalize())
    }

    fn icrc_hasher(&self) -> Option<crc32fast::Hasher> {
        const BTH_LEN: usize = crate::Bth::LEN;
        if self.udp_payload.len() < BTH_LEN + ICRC_LEN {
            return None;
        }
        let mut masked = self.datagram[..self.datagram.len() - ICRC_LEN].to_vec();
        let udp_at = self.datagram.len() - self.udp_payload.len() - UDP_LEN;
        match self.repr.ip {
            IpRepr::V4 { .. } => {
                masked[1] = 0xff;
                masked[8] = 0xff;
                masked[10..12].fill(0xff);
            }
            IpRepr::V6 { .. } => {
                masked[0] |= 0x0f;
                masked[1..4].fill(0xff);
                masked[7] = 0xff;
            }
        }
        masked[udp_at + 6..udp_at + 8].fill(0xff);
        masked[udp_at + UDP_LEN + 4] = 0xff;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&[0xff; 8]);
        crc.update(&masked);
        Some(crc)
    }

    /// Returns whether the last four bytes are the correct ICRC. For a FLUSH, either variant of
    /// [`crate::FlushIcrc`] is correct.
    #[must_use]
    pub fn icrc_holds(&self) -> bool {
        let received = self.udp_payload.last_chunk::<ICRC_LEN>().map(|&b| u32::from_le_bytes(b));
        let Some(standard) = self.icrc_hasher() else { return false };
        let is_flush = self.udp_payload.first().is_some_and(|&opcode| {
            opcode == Opcode::RcFlush.byte() || opcode == Opcode::XrcFlush.byte()
        });
        let mut rxe = standard.clone();
        rxe.update(&self.udp_payload[..self.udp_payload.len() - ICRC_LEN]);
        received == Some(standard.finalize()) || (is_flush && received == Some(rxe.finalize()))
    }

    /// Returns whether the IPv4 header checksum is correct. IPv6 has none, and the result is true.
    #[must_use]
    pub fn ip_checksum_holds(&self) -> bool {
        match (self.repr.ip, Ipv4Packet::new(self.datagram)) {
            (IpRepr::V4 { .. }, Some(ip)) => ip.get_checksum() == ipv4::checksum(&ip),
            _ => true,
        }
    }

    /// Returns whether the UDP checksum is correct or absent.
    #[must_use]
    pub fn udp_checksum_holds(&self) -> bool {
        let udp_at = self.datagram.len() - self.udp_payload.len() - UDP_LEN;
        let Some(udp) = UdpPacket::new(&self.datagram[udp_at..]) else { return false };
        let sum = match (self.repr.src.ip(), self.repr.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => udp::ipv4_checksum(&udp, &src, &dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => udp::ipv6_checksum(&udp, &src, &dst),
            _ => return false,
        };
        let sent = udp.get_checksum();
        sent == 0 || sent == sum || (sum == 0 && sent == 0xffff)
    }
}

#[cfg(test)]
mod tests;
