//! The 40 bytes in front of a datagram in its receive buffer, which state the source of the
//! datagram.
//!
//! ```text
//! IPv6: | IPv6 header 40 |
//! IPv4: | 20 zero bytes | IPv4 header 20 |
//! ```
//!
//! A UDP socket does not show the IP header. [`emit`] fills the missing fields as the sender must
//! have set them: DF, and the identification that the ICRC was made for. The flow label is 0. The
//! IPv4 header checksum must be correct, because `ibv_init_ah_from_wc` uses it to recognize IPv4.
//!
//! Sources: IBTA annex A17.4.5.2; the kernel's rxe_resp.c and `rdma_network_hdr` in
//! include/rdma/ib_verbs.h.

use std::net::{IpAddr, Ipv4Addr};

use crate::{Gid, Grh};

/// The fields of a received packet's IP header that a queue pair uses.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The source address of the packet.
    pub from: IpAddr,
    /// The destination: one of the device's own addresses, or a multicast group.
    pub to: IpAddr,
    /// The IP header's type of service or traffic class.
    pub traffic_class: u8,
    /// The IP header's hop limit, or 0 if the port does not learn it.
    pub hop_limit: u8,
    /// The IPv4 identification that the ICRC was made for.
    pub identification: u16,
}

const IPV4_AT: usize = 20;
const UDP_LEN: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;

/// The fields of a network header that a reply needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkHeader {
    /// The sender.
    pub from: IpAddr,
    /// The destination: an own address, or a multicast group.
    pub to: IpAddr,
    /// Traffic class or type of service.
    pub traffic_class: u8,
    /// Hop limit or time to live on arrival.
    pub hop_limit: u8,
    /// Flow label, 0 for IPv4.
    pub flow_label: u32,
}

/// The reason why bytes are not a network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkHeaderError {
    /// There are fewer than 40 bytes.
    #[error("the network header has 40 bytes, but there are {have}")]
    Short {
        /// Number of given bytes.
        have: usize,
    },
    /// The bytes are neither an IPv6 header nor 20 bytes followed by an IPv4 header.
    #[error(
        "the bytes are neither an IPv6 header nor 20 bytes and an IPv4 header with a valid checksum"
    )]
    Unknown,
}

impl NetworkHeader {
    /// The length of the header in bytes.
    pub const LEN: usize = Grh::LEN;

    /// Reads the first 40 bytes of a receive buffer.
    ///
    /// # Errors
    /// Fails with [`NetworkHeaderError`] if there are fewer bytes, or no IP header.
    pub fn parse(bytes: &[u8]) -> Result<Self, NetworkHeaderError> {
        let short = NetworkHeaderError::Short { have: bytes.len() };
        let bytes: &[u8; Self::LEN] = bytes.first_chunk().ok_or(short)?;
        if let Some(ipv4) =
            bytes.last_chunk::<20>().filter(|ipv4| ipv4[0] == 0x45 && checksum(&ipv4[..]) == 0)
        {
            let address =
                |at: usize| IpAddr::V4(Ipv4Addr::from([0, 1, 2, 3].map(|i| ipv4[at + i])));
            return Ok(Self {
                from: address(12),
                to: address(16),
                traffic_class: ipv4[1],
                hop_limit: ipv4[8],
                flow_label: 0,
            });
        }
        let grh = Grh::parse(bytes).map_err(|_| NetworkHeaderError::Unknown)?;
        Ok(Self {
            from: grh.sgid.to_ip(),
            to: grh.dgid.to_ip(),
            traffic_class: grh.traffic_class,
            hop_limit: grh.hop_limit,
            flow_label: grh.flow_label,
        })
    }
}

/// Returns the 40 bytes for a packet of `packet_len` bytes, from BTH to ICRC.
#[must_use]
pub fn emit(arrival: &Arrival, packet_len: usize) -> [u8; NetworkHeader::LEN] {
    let mut bytes = [0; NetworkHeader::LEN];
    let udp_len = UDP_LEN + packet_len;
    match (arrival.from, arrival.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = &mut bytes[IPV4_AT..];
            ip[0] = 0x45;
            ip[1] = arrival.traffic_class;
            ip[2..4].copy_from_slice(&((20 + udp_len) as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&arrival.identification.to_be_bytes());
            ip[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
            ip[8] = arrival.hop_limit;
            ip[9] = UDP_PROTOCOL;
            ip[12..16].copy_from_slice(&from.octets());
            ip[16..20].copy_from_slice(&to.octets());
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (from, to) => Grh {
            traffic_class: arrival.traffic_class,
            flow_label: 0,
            payload_len: udp_len as u16,
            next_header: UDP_PROTOCOL,
            hop_limit: arrival.hop_limit,
            sgid: Gid::from_ip(from),
            dgid: Gid::from_ip(to),
        }
        .emit(&mut bytes),
    }
    bytes
}

/// Returns the Internet checksum (RFC 1071) of an even number of bytes. For a header with a correct
/// checksum the result is 0.
fn checksum(bytes: &[u8]) -> u16 {
    !folded(sum(bytes))
}

/// Returns the sum of the 16-bit words of `bytes`. The last word of an odd number ends with a zero.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks_exact(2);
    let last = pairs.remainder().first().map_or(0, |&byte| u32::from(byte) << 8);
    pairs.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>() + last
}

/// Adds the carries of a sum to its low 16 bits.
pub(crate) fn folded(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(from: &str, to: &str) -> Arrival {
        Arrival {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            traffic_class: 0x28,
            hop_limit: 63,
            identification: 0xbeef,
        }
    }

    #[test]
    fn an_emitted_header_states_the_source() {
        for (from, to) in
            [("10.1.2.3", "10.1.2.4"), ("10.1.2.3", "239.0.0.9"), ("fe80::1", "ff02::9")]
        {
            let arrival = arrival(from, to);
            let header = NetworkHeader::parse(&emit(&arrival, 280)).unwrap();
            assert_eq!((header.from, header.to), (arrival.from, arrival.to));
            assert_eq!((header.traffic_class, header.hop_limit), (0x28, 63));
        }
    }

    /// Compares with pnet_packet, an independent implementation.
    #[cfg(feature = "decode")]
    #[test]
    fn an_ipv4_header_stands_in_the_last_twenty_bytes_with_a_right_checksum() {
        use crate::frame::{Frame, FrameRepr, IpRepr};
        let payload = [7; 100];
        let mut repr =
            FrameRepr::new("10.1.2.3:49152".parse().unwrap(), "10.1.2.4:4791".parse().unwrap());
        repr.link = None;
        repr.ip = IpRepr::V4 { tos: 0x28, identification: 0xbeef, dont_fragment: true, ttl: 63 };
        let frame = repr.build(&payload).unwrap();
        assert!(Frame::parse_ip(&frame).unwrap().ip_checksum_holds());
        let header = emit(&arrival("10.1.2.3", "10.1.2.4"), payload.len());
        assert_eq!(header[..20], [0; 20]);
        assert_eq!(header[20..], frame[..20]);
    }

    #[cfg(feature = "decode")]
    #[test]
    fn an_ipv6_header_is_the_packets_own() {
        use crate::frame::{FrameRepr, IpRepr};
        let payload = [7; 60];
        let mut repr =
            FrameRepr::new("[fe80::1]:49152".parse().unwrap(), "[fe80::2]:4791".parse().unwrap());
        repr.link = None;
        repr.ip = IpRepr::V6 { traffic_class: 0x28, flow_label: 0, hop_limit: 63 };
        let frame = repr.build(&payload).unwrap();
        assert_eq!(emit(&arrival("fe80::1", "fe80::2"), payload.len())[..], frame[..40]);
    }

    /// RFC 1071.
    #[test]
    fn the_checksum_of_every_sum_makes_the_words_add_up_to_ones() {
        for identification in 0..=u16::MAX {
            let header = emit(&Arrival { identification, ..arrival("10.1.2.3", "10.1.2.4") }, 280);
            // Each carry is added back at once.
            let sum = header[IPV4_AT..].chunks_exact(2).fold(0_u16, |sum, word| {
                let (sum, carries) = sum.overflowing_add(u16::from_be_bytes([word[0], word[1]]));
                sum + u16::from(carries)
            });
            assert_eq!(sum, 0xffff, "{identification:#x}");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(NetworkHeader::parse(&[0; 39]), Err(NetworkHeaderError::Short { have: 39 }));
        assert_eq!(NetworkHeader::parse(&[0; 40]), Err(NetworkHeaderError::Unknown));
        let mut header = emit(&arrival("10.1.2.3", "10.1.2.4"), 64);
        header[30] ^= 1;
        assert_eq!(NetworkHeader::parse(&header), Err(NetworkHeaderError::Unknown));
    }
}
