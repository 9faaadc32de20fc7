//! Global route header (IBTA vol. 1, 8.3).

use std::fmt;

use crate::Gid;
use crate::bytes::{at, be16, be32, head, put};
use crate::error::{Header, ParseError};

/// Global route header (IBTA vol. 1, 8.3), which has the layout of an IPv6 header.
///
/// ```text
///  0                4            6             7           8             24            40
/// +----------------+------------+-------------+-----------+-------------+-------------+
/// | version 4 bits | payload    | next header | hop limit | source GID  | destination |
/// | class   8 bits | length     |             |           |             | GID         |
/// | flow   20 bits |            |             |           |             |             |
/// +----------------+------------+-------------+-----------+-------------+-------------+
/// ```
///
/// RoCEv2 has no GRH on the wire, because the IP header takes its place. A GRH remains in the 40
/// bytes in front of every datagram in a receive buffer of a UD queue pair. For IPv6 these bytes
/// are a GRH. For IPv4 they are 20 zero bytes and the IPv4 header (IBTA A17.4.5.2).
///
/// ```
/// use std::net::{IpAddr, Ipv6Addr};
/// use urxe_wire::{Gid, Grh};
///
/// let gid = |last| Gid::from_ip(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last)));
/// let grh = Grh {
///     traffic_class: 2,
///     flow_label: 0x12345,
///     payload_len: 64,
///     next_header: 17,
///     hop_limit: 64,
///     sgid: gid(1),
///     dgid: gid(2),
/// };
/// // The start of a receive buffer of a UD queue pair.
/// let mut buffer = [0; 1024];
/// grh.emit(buffer.first_chunk_mut().unwrap());
/// assert_eq!(buffer[0] >> 4, 6);
/// assert_eq!(Grh::parse(&buffer).unwrap(), grh);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits. [`emit`](Self::emit) drops higher bits.
    pub flow_label: u32,
    /// Length of the data after the GRH, in bytes.
    pub payload_len: u16,
    /// Next header: 0x1b for an IBA transport header, 17 for UDP.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub sgid: Gid,
    /// Destination GID.
    pub dgid: Gid,
}

impl Grh {
    /// The length of the header in bytes.
    pub const LEN: usize = Header::Grh.wire_len();

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// Fails with [`ParseError::ShortHeader`] if `bytes` is shorter than [`LEN`](Self::LEN), and
    /// with [`ParseError::BadGrhVersion`] if the IP version is not 6.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::Grh)?;
        let word = be32(b, 0);
        if word >> 28 != 6 {
            return Err(ParseError::BadGrhVersion((word >> 28) as u8));
        }
        Ok(Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0x000f_ffff,
            payload_len: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            sgid: Gid(at(b, 8)),
            dgid: Gid(at(b, 24)),
        })
    }

    /// Writes the header to `buf`.
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        put(buf, 0, word.to_be_bytes());
        put(buf, 4, self.payload_len.to_be_bytes());
        buf[6] = self.next_header;
        buf[7] = self.hop_limit;
        put(buf, 8, self.sgid.0);
        put(buf, 24, self.dgid.0);
    }
}

impl fmt::Display for Grh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {} tclass {} hops {}",
            self.sgid, self.dgid, self.traffic_class, self.hop_limit
        )
    }
}
