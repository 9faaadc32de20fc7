//! Private data of a connection, equal in REQ and REP (`struct rs_conn_data`).

use super::segment::{Segment, array};

/// The protocol version.
pub const VERSION: u8 = 1;
/// Numbers in the memory of this side are in network byte order.
const NETWORK_ORDER: u8 = 1;
/// The list of iomappings follows the targets.
const IOMAP: u8 = 1 << 1;
/// Larger numbers of iomappings are encoded with a lower resolution.
const EXACT: u32 = 128;

/// The private data of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnData {
    pub version: u8,
    pub network_order: bool,
    pub has_iomaps: bool,
    /// Number of messages that the peer may send before the first grant.
    pub credits: u16,
    /// Number of iomappings that the peer may make, encoded by [`encode_iomaps`].
    pub iomaps: u8,
    /// The list into which the peer writes its targets; the length counts entries.
    pub targets: Segment,
    /// The memory for the peer's first data.
    pub first_target: Segment,
}

impl ConnData {
    pub const LEN: usize = 40;

    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.version;
        bytes[1] = if self.network_order { NETWORK_ORDER } else { 0 }
            | if self.has_iomaps { IOMAP } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = self.iomaps;
        bytes[8..24].copy_from_slice(&self.targets.to_network());
        bytes[24..40].copy_from_slice(&self.first_target.to_network());
        bytes
    }

    /// Parses the private data of a peer, which may have more bytes behind. Returns `None` for data
    /// that is too short or of another version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let segment = |at| Segment::from_network(&array(bytes, at));
        (bytes[0] == VERSION).then(|| Self {
            version: bytes[0],
            network_order: bytes[1] & NETWORK_ORDER != 0,
            has_iomaps: bytes[1] & IOMAP != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            iomaps: bytes[7],
            targets: segment(8),
            first_target: segment(24),
        })
    }
}

/// Encodes a number of iomappings in eight bits: exact up to 128, rounded down to a multiple of 256
/// above.
pub fn encode_iomaps(iomaps: u32) -> u8 {
    let bits = if iomaps <= EXACT { iomaps } else { EXACT | iomaps >> 8 };
    bits as u8
}

/// Decodes a number of iomappings.
pub fn decode_iomaps(encoded: u8) -> u32 {
    let encoded = u32::from(encoded);
    if encoded <= EXACT { encoded } else { (encoded & !EXACT) << 8 }
}
