//! Writes captures in the pcapng format (draft-ietf-opsawg-pcapng).
//!
//! The functions append blocks to a vector, and the caller stores the vector. A file consists of a
//! section header, one interface description for each port, and enhanced packet blocks. Blocks are
//! little-endian. Timestamps count nanoseconds since 1970.
//!
//! ```text
//! | type 4 | total length 4 | body, options, padded to 4 | total length 4 |
//! ```

/// The first header of an interface's packets (registry of tcpdump.org).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum LinkType {
    /// Packets start with an Ethernet header.
    Ethernet = 1,
    /// Packets start with an IPv4 or IPv6 header.
    Raw = 101,
}

/// The direction of a packet at the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// The largest number of bytes kept for a packet. RoCEv2 frames are far shorter.
pub const SNAP_LEN: usize = 1 << 18;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const OPT_SHB_USER_APPLICATION: u16 = 4;
const OPT_IF_NAME: u16 = 2;
const OPT_IF_TIMESTAMP_RESOLUTION: u16 = 9;
const OPT_EPB_FLAGS: u16 = 2;

/// Appends the block that starts a file. `application` names the program that wrote the file.
pub fn section_header(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION_HEADER, |out| {
        out.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend(1u16.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        // The length of the section is unknown while it is written.
        out.extend(u64::MAX.to_le_bytes());
        option(out, OPT_SHB_USER_APPLICATION, application.as_bytes());
        option(out, OPT_END, &[]);
    });
}

/// Appends the description of an interface. Interfaces are numbered from 0 in the order of their
/// descriptions.
pub fn interface_description(out: &mut Vec<u8>, link_type: LinkType, name: &str) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend((link_type as u16).to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend((SNAP_LEN as u32).to_le_bytes());
        option(out, OPT_IF_NAME, name.as_bytes());
        // The resolution is 10^-9 s.
        option(out, OPT_IF_TIMESTAMP_RESOLUTION, &[9]);
        option(out, OPT_END, &[]);
    });
}

/// A packet to record.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// Number of the interface, in the order of the descriptions.
    pub interface: u32,
    /// Time in nanoseconds since 1970, or since the start of a simulation.
    pub timestamp_ns: u64,
    /// The frame.
    pub data: &'a [u8],
    /// The largest number of bytes to keep, at most [`SNAP_LEN`]. A reader still sees the frame's
    /// length.
    pub snap_len: usize,
    /// Direction, if known.
    pub direction: Option<Direction>,
    /// A comment for readers of the capture, for example the reason of a drop. May be empty.
    pub comment: &'a str,
}

/// Appends a packet block.
pub fn enhanced_packet(out: &mut Vec<u8>, packet: &PacketRecord<'_>) {
    block(out, ENHANCED_PACKET, |out| {
        let kept = &packet.data[..packet.data.len().min(packet.snap_len).min(SNAP_LEN)];
        out.extend(packet.interface.to_le_bytes());
        out.extend(((packet.timestamp_ns >> 32) as u32).to_le_bytes());
        out.extend((packet.timestamp_ns as u32).to_le_bytes());
        out.extend((kept.len() as u32).to_le_bytes());
        out.extend(u32::try_from(packet.data.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(kept);
        pad(out, kept.len());
        if packet.direction.is_some() || !packet.comment.is_empty() {
            if !packet.comment.is_empty() {
                option(out, OPT_COMMENT, packet.comment.as_bytes());
            }
            if let Some(direction) = packet.direction {
                option(out, OPT_EPB_FLAGS, &(direction as u32).to_le_bytes());
            }
            option(out, OPT_END, &[]);
        }
    });
}

/// Appends a block around the bytes that `body` appends, which must be a multiple of four.
fn block(out: &mut Vec<u8>, block_type: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(block_type.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let total = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    out.extend(total.to_le_bytes());
}

/// Appends an option. A value that exceeds the 16-bit length field is cut at a character boundary.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let mut len = value.len().min(usize::from(u16::MAX));
    while len < value.len() && value[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    out.extend(code.to_le_bytes());
    out.extend((len as u16).to_le_bytes());
    out.extend(&value[..len]);
    pad(out, len);
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(&[0; 3][..len.wrapping_neg() & 3]);
}

#[cfg(test)]
mod tests;
