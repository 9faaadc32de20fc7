//! Parsing of frames, by the layouts of pnet_packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pnet_packet::ethernet::{EtherType, EtherTypes, EthernetPacket};
use pnet_packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet_packet::ipv4::{self, Ipv4Flags, Ipv4Packet};
use pnet_packet::ipv6::Ipv6Packet;
use pnet_packet::udp::{self, UdpPacket};
use pnet_packet::vlan::VlanPacket;

use super::{
    ETHERNET_LEN, FrameError, FrameHeader, FrameRepr, IPV4_LEN, IPV6_LEN, IpRepr, LinkRepr,
    MAX_VLAN_TAGS, UDP_LEN, VLAN_LEN,
};
use crate::Opcode;
use crate::packet::ICRC_LEN;

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
