//! The message format for packets that one process forwards to another of the same address.
//!
//! ```text
//!  0     1         2        4              8         9       10        26            42
//! +-----+---------+--------+--------------+---------+-------+---------+-------------+---------
//! | 'F' | version | source | segment size | traffic | hop   | source  | destination | payload
//! |     |         | port   |              | class   | limit | address | address     |
//! +-----+---------+--------+--------------+---------+-------+---------+-------------+---------
//! ```
//! Each packet is one message of a local socket and never leaves the machine. Numbers are in the
//! machine's byte order; addresses are IPv6 or IPv4-mapped (RFC 4291, 2.5.5.2).

use std::net::{IpAddr, Ipv6Addr};

use urxe_types::port::Datagrams;

use crate::rendezvous::PROTOCOL;

pub(super) const FORWARD: u8 = b'F';
/// Bytes before the payload.
pub const HEADER_LEN: usize = 42;

/// Returns the header for `datagrams`, whose payload follows it.
#[must_use]
pub fn header(datagrams: &Datagrams<'_>) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..2].copy_from_slice(&[FORWARD, PROTOCOL]);
    bytes[2..4].copy_from_slice(&datagrams.from_port.to_ne_bytes());
    bytes[4..8].copy_from_slice(&(datagrams.segment_size as u32).to_ne_bytes());
    bytes[8..10].copy_from_slice(&[datagrams.traffic_class, datagrams.hop_limit]);
    bytes[10..26].copy_from_slice(&octets(datagrams.from));
    bytes[26..42].copy_from_slice(&octets(datagrams.to));
    bytes
}

/// Parses a message; `None` if it is not a forwarded packet.
#[must_use]
pub fn parse(message: &[u8]) -> Option<Datagrams<'_>> {
    let (header, payload) = message.split_first_chunk::<HEADER_LEN>()?;
    let segment_size = u32::from_ne_bytes(std::array::from_fn(|n| header[4 + n])) as usize;
    if header[..2] != [FORWARD, PROTOCOL] || segment_size == 0 || payload.is_empty() {
        return None;
    }
    let address = |at: usize| -> IpAddr {
        let octets: [u8; 16] = std::array::from_fn(|n| header[at + n]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    Some(Datagrams {
        from: address(10),
        from_port: u16::from_ne_bytes([header[2], header[3]]),
        to: address(26),
        bytes: payload,
        segment_size,
        traffic_class: header[8],
        hop_limit: header[9],
    })
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        for (from, to) in [("10.0.0.1", "127.0.0.2"), ("fe80::1", "::1")] {
            let datagrams = Datagrams {
                from: from.parse().unwrap(),
                from_port: 0xc123,
                to: to.parse().unwrap(),
                bytes: &[1, 2, 3, 4, 5],
                segment_size: 2,
                traffic_class: 0xe1,
                hop_limit: 63,
            };
            let mut message = header(&datagrams).to_vec();
            assert!(parse(&message).is_none(), "no payload");
            message.extend_from_slice(datagrams.bytes);
            assert_eq!(format!("{:?}", parse(&message).unwrap()), format!("{datagrams:?}"));
            for (at, value) in [(0, b'J'), (1, 9)] {
                let mut wrong = message.clone();
                wrong[at] = value;
                assert!(parse(&wrong).is_none());
            }
            message[4..8].fill(0);
            assert!(parse(&message).is_none(), "segments of no size");
        }
    }
}
