//! Reads records from a pcap or pcapng file.
//!
//! The reader loads a whole block, as its length field says, and `pcap-parser` parses the block.
//! The reader handles sections, interfaces and time stamps. At most one block is in memory. The
//! reader refuses a block longer than [`MAX_BLOCK_LEN`], so a damaged length cannot make the
//! program allocate gigabytes.
//!
//! The readers of `pcap-parser` are not used, for three reasons:
//!
//! - Their first read must return the whole section header, and a pipe may return less.
//! - They drop the cause of a failed read.
//! - Their time stamps support neither powers of two nor big-endian offsets.
//!
//! Formats: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>,
//! draft-ietf-opsawg-pcapng-02.

use std::io::{self, BufReader, Read};

use pcap_parser::pcap::{
    PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
};
use pcap_parser::pcapng::{
    BOM_MAGIC, Block, EPB_MAGIC, EnhancedPacketBlock, InterfaceDescriptionBlock, OptionCode,
    SHB_MAGIC, SPB_MAGIC, SimplePacketBlock, parse_block_be, parse_block_le,
};

#[cfg(test)]
mod tests;

/// The longest block that the reader accepts, in bytes.
pub const MAX_BLOCK_LEN: usize = 16 << 20;

/// The largest number of interfaces of a section. The specification sets no limit, and each
/// interface costs memory.
const MAX_INTERFACES: usize = 65_536;

/// Bytes of a classic file's header.
const FILE_HEADER_LEN: usize = 24;

/// Bytes of the shortest pcapng block: its type, and its length at both ends.
const MIN_BLOCK_LEN: usize = 12;

/// Errors of a capture file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot open the file")]
    Open(#[source] io::Error),
    /// The file cannot be read.
    #[error("cannot read the capture beyond byte {offset}")]
    Read {
        /// The position of the block.
        offset: u64,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The file is empty.
    #[error("the file is empty; a capture has at least a file header")]
    Empty,
    /// The first bytes belong to no supported format.
    #[error(
        "not a capture: the file begins with the bytes {magic:02x?}; supported are pcap and pcapng"
    )]
    NotACapture {
        /// The first bytes.
        magic: [u8; 4],
    },
    /// The file ends in the middle of a block.
    #[error("the capture is cut short: the block at byte {offset} has only {have} bytes")]
    Truncated {
        /// The position of the block.
        offset: u64,
        /// The bytes of the block in the file.
        have: usize,
    },
    /// A block is longer than [`MAX_BLOCK_LEN`].
    #[error(
        "the capture is damaged: the block at byte {offset} has a length over {MAX_BLOCK_LEN} bytes"
    )]
    TooLong {
        /// The position of the block.
        offset: u64,
    },
    /// A block violates the format.
    #[error("the capture is damaged: the block at byte {offset} violates the format")]
    Malformed {
        /// The position of the block.
        offset: u64,
    },
    /// A packet names an interface that no block has described.
    #[error(
        "the capture is damaged: the packet at byte {offset} names interface {interface}, \
         of {known} described before"
    )]
    NoInterface {
        /// The position of the packet's block.
        offset: u64,
        /// The interface of the packet.
        interface: u32,
        /// The number of interfaces of the section so far.
        known: usize,
    },
}

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970, if the file has a time stamp.
    pub time_ns: Option<u128>,
    /// The type of the first header (LINKTYPE numbers of tcpdump.org).
    pub link_type: u32,
    /// The bytes captured.
    pub bytes: &'a [u8],
    /// Bytes of the packet on the wire; more than captured if the capture truncated the packet.
    pub original_len: u32,
    /// The comment in the file.
    pub comment: Option<String>,
}

/// Reads records one by one.
pub struct Reader<R> {
    source: BufReader<R>,
    /// The bytes of the current block that have been read.
    block: Vec<u8>,
    /// Whether the current block has been returned.
    is_done: bool,
    /// The position of the current block in the file.
    offset: u64,
    format: Format,
}

enum Format {
    Pcap(PcapHeader),
    PcapNg { big_endian: bool, interfaces: Vec<Interface> },
}

/// An interface description of a pcapng file.
#[derive(Clone, Copy)]
struct Interface {
    link_type: u32,
    snap_len: u32,
    /// The option `if_tsresol`: a power of 10, or of 2 with the top bit set.
    resolution: u8,
    /// The option `if_tsoffset`, in seconds.
    offset_s: i64,
}

impl<R: Read> Reader<R> {
    /// Reads the start of a file and determines the format.
    ///
    /// # Errors
    /// [`CaptureError`]: the file cannot be read, is empty, or has another format.
    pub fn new(source: R) -> Result<Self, CaptureError> {
        let mut reader = Self {
            source: BufReader::new(source),
            block: Vec::new(),
            is_done: false,
            offset: 0,
            format: Format::PcapNg { big_endian: false, interfaces: Vec::new() },
        };
        if !reader.read_to(4)? {
            return Err(CaptureError::Empty);
        }
        let magic = [0, 1, 2, 3].map(|at| reader.block[at]);
        if magic != SHB_MAGIC.to_le_bytes() {
            reader.read_to(FILE_HEADER_LEN)?;
            let (_, header) = parse_pcap_header(&reader.block)
                .map_err(|_| CaptureError::NotACapture { magic })?;
            reader.format = Format::Pcap(header);
            reader.is_done = true;
        }
        Ok(reader)
    }

    /// Returns the next packet; `None` at the end of the file.
    ///
    /// # Errors
    /// [`CaptureError`]: the file cannot be read further.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        while self.read_block()? {
            self.is_done = true;
            if self.holds_packet() {
                return self.record().map(Some);
            }
            self.take_in()?;
        }
        Ok(None)
    }

    /// Reads the next block completely. Returns `false` at the end of the file.
    fn read_block(&mut self) -> Result<bool, CaptureError> {
        if std::mem::take(&mut self.is_done) {
            self.offset += self.block.len() as u64;
            self.block.clear();
        }
        let (head_len, len) = match &self.format {
            Format::Pcap(header) => {
                let head_len = if header.is_modified_format() { 24 } else { 16 };
                let big_endian = header.is_bigendian();
                if !self.read_to(head_len)? {
                    return Ok(false);
                }
                (head_len, self.u32_at(8, big_endian) as usize)
            }
            Format::PcapNg { big_endian, .. } => {
                let big_endian = *big_endian;
                if !self.read_to(MIN_BLOCK_LEN)? {
                    return Ok(false);
                }
                // A section header defines its own byte order, independent of the previous section.
                let is_section = self.u32_at(0, false) == SHB_MAGIC;
                let big_endian = if is_section { self.section_order()? } else { big_endian };
                let len = self.u32_at(4, big_endian) as usize;
                (MIN_BLOCK_LEN, len.checked_sub(MIN_BLOCK_LEN).ok_or_else(|| self.malformed())?)
            }
        };
        self.read_to(head_len.saturating_add(len))
    }

    /// Reads until the block has `len` bytes. Returns `false` at the end of the file.
    fn read_to(&mut self, len: usize) -> Result<bool, CaptureError> {
        let offset = self.offset;
        if len > MAX_BLOCK_LEN {
            return Err(CaptureError::TooLong { offset });
        }
        let missing = len.saturating_sub(self.block.len()) as u64;
        let read = self.source.by_ref().take(missing).read_to_end(&mut self.block);
        read.map_err(|error| CaptureError::Read { offset, error })?;
        match self.block.len() {
            0 => Ok(false),
            have if have < len => Err(CaptureError::Truncated { offset, have }),
            _ => Ok(true),
        }
    }

    fn u32_at(&self, at: usize, big_endian: bool) -> u32 {
        let bytes = self.block[at..].first_chunk().copied().unwrap_or_default();
        if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Returns whether a section header's numbers are big-endian.
    fn section_order(&self) -> Result<bool, CaptureError> {
        let says = |big_endian| self.u32_at(8, big_endian) == BOM_MAGIC;
        if says(true) || says(false) { Ok(says(true)) } else { Err(self.malformed()) }
    }

    fn malformed(&self) -> CaptureError {
        CaptureError::Malformed { offset: self.offset }
    }

    fn parse_block(&self, big_endian: bool) -> Result<Block<'_>, CaptureError> {
        let parse = if big_endian { parse_block_be } else { parse_block_le };
        parse(&self.block).map(|(_, block)| block).map_err(|_| self.malformed())
    }

    fn holds_packet(&self) -> bool {
        match self.format {
            Format::Pcap(_) => true,
            Format::PcapNg { big_endian, .. } => {
                matches!(self.u32_at(0, big_endian), EPB_MAGIC | SPB_MAGIC)
            }
        }
    }

    /// Stores the section or interface that a block without a packet describes.
    fn take_in(&mut self) -> Result<(), CaptureError> {
        let Format::PcapNg { big_endian, .. } = self.format else { return Ok(()) };
        let (section, interface) = match self.parse_block(big_endian)? {
            Block::SectionHeader(section) => (Some(section.big_endian()), None),
            Block::InterfaceDescription(block) => (None, Some(described(&block, big_endian))),
            _ => (None, None),
        };
        let malformed = self.malformed();
        if let Some(big_endian) = section {
            self.format = Format::PcapNg { big_endian, interfaces: Vec::new() };
        }
        if let (Some(interface), Format::PcapNg { interfaces, .. }) = (interface, &mut self.format)
        {
            if interfaces.len() == MAX_INTERFACES {
                return Err(malformed);
            }
            interfaces.push(interface);
        }
        Ok(())
    }

    /// Returns the packet in the block.
    fn record(&self) -> Result<Record<'_>, CaptureError> {
        match &self.format {
            Format::Pcap(header) => classic(&self.block, header).ok_or_else(|| self.malformed()),
            Format::PcapNg { big_endian, interfaces } => {
                let (interface, record) = match self.parse_block(*big_endian)? {
                    Block::EnhancedPacket(packet) => (packet.if_id, enhanced(&packet, interfaces)),
                    Block::SimplePacket(packet) => (0, simple(&packet, interfaces)),
                    _ => return Err(self.malformed()),
                };
                record.ok_or(CaptureError::NoInterface {
                    offset: self.offset,
                    interface,
                    known: interfaces.len(),
                })
            }
        }
    }
}

/// Returns a classic pcap record.
fn classic<'a>(block: &'a [u8], header: &PcapHeader) -> Option<Record<'a>> {
    let parsed = if header.is_modified_format() {
        parse_pcap_frame_modified(block)
    } else if header.is_bigendian() {
        parse_pcap_frame_be(block)
    } else {
        parse_pcap_frame(block)
    };
    let (_, frame) = parsed.ok()?;
    let unit_ns = if header.is_nanosecond_precision() { 1 } else { 1000 };
    let time_ns = u128::from(frame.ts_sec) * 1_000_000_000 + u128::from(frame.ts_usec) * unit_ns;
    Some(Record {
        time_ns: Some(time_ns),
        // The upper bits hold the length of a frame check sequence.
        link_type: header.network.0 as u32 & 0xffff,
        bytes: frame.data,
        original_len: frame.origlen,
        comment: None,
    })
}

fn described(block: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Interface {
    let option =
        |code| block.options.iter().find(|option| option.code == code).map(|option| option.value());
    let offset_s =
        option(OptionCode::IfTsoffset).and_then(<[u8]>::first_chunk).map_or(0, |bytes| {
            if big_endian { i64::from_be_bytes(*bytes) } else { i64::from_le_bytes(*bytes) }
        });
    Interface {
        link_type: block.linktype.0 as u32,
        snap_len: block.snaplen,
        resolution: option(OptionCode::IfTsresol).and_then(<[u8]>::first).copied().unwrap_or(6),
        offset_s,
    }
}

/// Returns the packet of an enhanced packet block; `None` if no block has described its interface.
fn enhanced<'a>(block: &EnhancedPacketBlock<'a>, interfaces: &[Interface]) -> Option<Record<'a>> {
    let interface = interfaces.get(block.if_id as usize)?;
    // The parser returns an option's value with its padding; only its own bytes count.
    let comment = block.options.iter().find(|option| option.code == OptionCode::Comment);
    let comment = comment.and_then(|option| option.as_bytes().ok());
    let ticks = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
    Some(Record {
        time_ns: interface.time_ns(ticks),
        link_type: interface.link_type,
        bytes: &block.data[..block.data.len().min(block.caplen as usize)],
        original_len: block.origlen,
        comment: comment.map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
    })
}

/// Returns the packet of a simple packet block. The packet belongs to the first interface, has no
/// time stamp, and is at most as long as the snap length.
fn simple<'a>(block: &SimplePacketBlock<'a>, interfaces: &[Interface]) -> Option<Record<'a>> {
    let interface = interfaces.first()?;
    let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
    let len = block.origlen.min(snap_len) as usize;
    Some(Record {
        time_ns: None,
        link_type: interface.link_type,
        bytes: &block.data[..block.data.len().min(len)],
        original_len: block.origlen,
        comment: None,
    })
}

impl Interface {
    /// Returns the nanoseconds since 1970 of a time stamp; `None` if that is no time.
    fn time_ns(&self, ticks: u64) -> Option<u128> {
        let exponent = u32::from(self.resolution & 0x7f);
        let per_second = if self.resolution & 0x80 != 0 {
            1u128.checked_shl(exponent)?
        } else {
            10u128.checked_pow(exponent)?
        };
        let ns = i128::try_from(u128::from(ticks) * 1_000_000_000 / per_second).ok()?;
        u128::try_from(ns + i128::from(self.offset_s) * 1_000_000_000).ok()
    }
}
