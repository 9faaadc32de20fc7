//! Private data of a connection, the same in REQ and REP (`struct rs_conn_data`).

use super::segment::{Segment, array};

/// What is spoken here.
pub const VERSION: u8 = 1;
/// Numbers in this side's memory are in network order.
const NETWORK_ORDER: u8 = 1;
/// The list of iomappings stands behind the targets.
const IOMAP: u8 = 1 << 1;
/// Numbers above this are told coarsely.
const EXACT: u32 = 128;

/// How a side introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnData {
    pub version: u8,
    pub network_order: bool,
    pub has_iomaps: bool,
    /// Messages that may come before a grant.
    pub credits: u16,
    /// Iomappings that the peer may make, as they are told: see [`encode_iomaps`].
    pub iomaps: u8,
    /// Where the peer writes what it lends; the length counts entries.
    pub targets: Segment,
    /// Where the peer's first data goes.
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

    /// What a peer says; behind it may be more. `None`: too short, or of another version.
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

/// A number of iomappings in the eight bits that tell it: exact up to 128, above that a multiple
/// of 256.
pub fn encode_iomaps(iomaps: u32) -> u8 {
    let bits = if iomaps <= EXACT { iomaps } else { EXACT | iomaps >> 8 };
    bits as u8
}

/// The number that is told so.
pub fn decode_iomaps(encoded: u8) -> u32 {
    let encoded = u32::from(encoded);
    if encoded <= EXACT { encoded } else { (encoded & !EXACT) << 8 }
}
