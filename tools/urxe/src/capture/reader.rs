//! Records out of a pcap or pcapng file.
//!
//! The formats' blocks are parsed by `pcap-parser`; buffering, sections, interfaces and time stamps
//! are dealt with here. At most one block is held in memory, and a block longer than
//! [`MAX_BLOCK_LEN`] is refused, so that a damaged length cannot make the program allocate
//! gigabytes.
//!
//! Formats: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>,
//! draft-ietf-opsawg-pcapng-02.

use std::io::{self, Read};
use std::path::PathBuf;

use pcap_parser::PcapError;
use pcap_parser::nom;
use pcap_parser::pcap::{
    LegacyPcapBlock, PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
};
use pcap_parser::pcapng::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, OptionCode, SimplePacketBlock,
    parse_block_be, parse_block_le, parse_sectionheaderblock,
};
use pcap_parser::traits::PcapNGPacketBlock;

#[cfg(test)]
mod tests;

/// The longest block that is read, in bytes.
pub const MAX_BLOCK_LEN: usize = 16 << 20;

/// The most interfaces a section may describe; the specification sets no limit, and each costs
/// memory.
const MAX_INTERFACES: usize = 65_536;

/// How much is asked of the file at once, in bytes.
const READ_LEN: usize = 64 << 10;

/// First four bytes of a pcapng file, which read the same in either byte order.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Bytes of an enhanced packet block, of a simple packet block before the packet.
const ENHANCED_HEAD_LEN: usize = 28;
const SIMPLE_HEAD_LEN: usize = 12;

/// Why a capture file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read the capture beyond byte {offset}")]
    Read {
        /// Where the block begins that could not be read.
        offset: u64,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// There is nothing in the file.
    #[error("the capture is empty: not even a file header")]
    Empty,
    /// The first bytes are of no capture format.
    #[error("not a capture: it begins with the bytes {magic:02x?}; pcap and pcapng files are read")]
    NotACapture {
        /// The first bytes.
        magic: [u8; 4],
    },
    /// The file ends in the middle of a block.
    #[error(
        "the capture is cut short: the block at byte {offset} is incomplete ({have} bytes of it are there)"
    )]
    Truncated {
        /// Where the block begins.
        offset: u64,
        /// How much of it is there, in bytes.
        have: usize,
    },
    /// A block is longer than [`MAX_BLOCK_LEN`].
    #[error(
        "the block at byte {offset} claims more than {MAX_BLOCK_LEN} bytes; the capture is damaged there"
    )]
    TooLong {
        /// Where the block begins.
        offset: u64,
    },
    /// A block does not follow the format.
    #[error("the block at byte {offset} does not follow the capture format")]
    Malformed {
        /// Where the block begins.
        offset: u64,
    },
    /// A packet names an interface that no block has described.
    #[error(
        "the packet at byte {offset} names interface {interface}; {known} are described before it"
    )]
    NoInterface {
        /// Where the block begins.
        offset: u64,
        /// The interface's number.
        interface: u32,
        /// How many there are.
        known: usize,
    },
}

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970, if the file says when.
    pub time_ns: Option<u128>,
    /// What the bytes begin with (tcpdump.org's LINKTYPE numbers).
    pub link_type: u32,
    /// The bytes captured.
    pub bytes: &'a [u8],
    /// Bytes of the packet when it was on the wire; more than captured if the capture cut it.
    pub original_len: u32,
    /// A remark of whoever captured it.
    pub comment: Option<String>,
}

/// Reads records one by one.
pub struct Reader<R> {
    source: R,
    /// What has been read and not yet given out, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// Where in the file the buffer's `start` is.
    offset: u64,
    format: Format,
}

enum Format {
    Pcap(PcapHeader),
    PcapNg { big_endian: bool, interfaces: Vec<Interface> },
}

impl Format {
    /// What holds before the first section header.
    const UNKNOWN: Self = Self::PcapNg { big_endian: false, interfaces: Vec::new() };
}

/// What a pcapng file says of an interface.
#[derive(Clone, Copy)]
struct Interface {
    link_type: u32,
    snap_len: u32,
    /// The option `if_tsresol`: a power of 10, or of 2 with the top bit set.
    resolution: u8,
    /// The option `if_tsoffset`, in seconds.
    offset_s: i64,
}

/// A block that holds a packet: where in the block, and what the file says about it.
struct Found {
    time_ns: Option<u128>,
    link_type: u32,
    from: usize,
    len: usize,
    original_len: u32,
    comment: Option<String>,
}

/// What a block is good for.
enum Step {
    Packet(Found),
    Section { big_endian: bool },
    Interface(Interface),
    NoInterface { interface: u32 },
    Other,
}

/// Why a block does not parse.
enum Stop {
    /// It may, with this many bytes more.
    Incomplete(usize),
    Wrong,
}

impl From<nom::Err<PcapError<&[u8]>>> for Stop {
    fn from(error: nom::Err<PcapError<&[u8]>>) -> Self {
        match error {
            nom::Err::Incomplete(nom::Needed::Size(more)) => Self::Incomplete(more.get()),
            nom::Err::Incomplete(nom::Needed::Unknown) => Self::Incomplete(1),
            nom::Err::Error(_) | nom::Err::Failure(_) => Self::Wrong,
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads the head of a file and finds out its format.
    pub fn new(source: R) -> Result<Self, CaptureError> {
        let mut reader =
            Self { source, buffer: Vec::new(), start: 0, offset: 0, format: Format::UNKNOWN };
        while reader.buffer.len() < SECTION_HEADER.len() {
            if !reader.fill()? {
                let is_empty = reader.buffer.is_empty();
                return Err(if is_empty { CaptureError::Empty } else { reader.truncated() });
            }
        }
        if !reader.buffer.starts_with(&SECTION_HEADER) {
            let magic = [0, 1, 2, 3].map(|at| reader.buffer[at]);
            let header = reader.parse_whole(|data| {
                let (rest, header) = parse_pcap_header(data)?;
                Ok((data.len() - rest.len(), header))
            });
            reader.format = Format::Pcap(header.map_err(|error| match error {
                CaptureError::Malformed { .. } => CaptureError::NotACapture { magic },
                other => other,
            })?);
        }
        Ok(reader)
    }

    /// The next packet; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        loop {
            while self.start == self.buffer.len() {
                if !self.fill()? {
                    return Ok(None);
                }
            }
            let offset = self.offset;
            // Lent out while the buffer is being filled, and put back whatever comes of it.
            let format = std::mem::replace(&mut self.format, Format::UNKNOWN);
            let parsed = self.parse_whole(|data| {
                let (len, step) = match &format {
                    Format::Pcap(header) => classic_step(data, header)?,
                    Format::PcapNg { big_endian, interfaces } => {
                        ng_step(data, *big_endian, interfaces)?
                    }
                };
                Ok((len, (len, step)))
            });
            self.format = format;
            let (len, step) = parsed?;
            if let Some(Found {
                time_ns,
                link_type,
                from,
                len: packet_len,
                original_len,
                comment,
            }) = self.take_in(step, offset)?
            {
                // The block has been consumed and still stands in the buffer, before `start`.
                let at = self.start - len + from;
                let bytes = &self.buffer[at..at + packet_len];
                return Ok(Some(Record { time_ns, link_type, bytes, original_len, comment }));
            }
        }
    }

    /// Learns what a block says about the file; gives back the packet, if it is one.
    fn take_in(&mut self, step: Step, offset: u64) -> Result<Option<Found>, CaptureError> {
        match (step, &mut self.format) {
            (Step::Packet(found), _) => return Ok(Some(found)),
            (Step::Section { big_endian }, format) => {
                *format = Format::PcapNg { big_endian, interfaces: Vec::new() };
            }
            (Step::Interface(interface), Format::PcapNg { interfaces, .. }) => {
                if interfaces.len() == MAX_INTERFACES {
                    return Err(CaptureError::Malformed { offset });
                }
                interfaces.push(interface);
            }
            (Step::NoInterface { interface }, Format::PcapNg { interfaces, .. }) => {
                return Err(CaptureError::NoInterface {
                    offset,
                    interface,
                    known: interfaces.len(),
                });
            }
            (Step::Interface(_) | Step::NoInterface { .. } | Step::Other, _) => {}
        }
        Ok(None)
    }

    /// Parses one thing from the buffer's start, reading more of the file until it is whole, and
    /// consumes it. `parse` gives its length and what it means.
    fn parse_whole<T>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<(usize, T), Stop>,
    ) -> Result<T, CaptureError> {
        loop {
            let offset = self.offset;
            let data = &self.buffer[self.start..];
            match parse(data) {
                // A block of no bytes would be found again for ever.
                Ok((0, _)) | Err(Stop::Wrong) => return Err(CaptureError::Malformed { offset }),
                Ok((len, meaning)) => {
                    self.start += len;
                    self.offset += len as u64;
                    return Ok(meaning);
                }
                Err(Stop::Incomplete(more)) => {
                    if data.len().saturating_add(more) > MAX_BLOCK_LEN {
                        return Err(CaptureError::TooLong { offset });
                    }
                    if !self.fill()? {
                        return Err(self.truncated());
                    }
                }
            }
        }
    }

    /// Reads some more of the file; false at its end.
    fn fill(&mut self) -> Result<bool, CaptureError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let had = self.buffer.len();
        self.buffer.resize(had + READ_LEN, 0);
        let got = loop {
            match self.source.read(&mut self.buffer[had..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(had + got.as_ref().map_or(0, |&len| len));
        match got {
            Ok(len) => Ok(len > 0),
            Err(error) => Err(CaptureError::Read { offset: self.offset, error }),
        }
    }

    fn truncated(&self) -> CaptureError {
        CaptureError::Truncated { offset: self.offset, have: self.buffer.len() - self.start }
    }
}

/// The length and meaning of a classic pcap record.
fn classic_step(data: &[u8], header: &PcapHeader) -> Result<(usize, Step), Stop> {
    type Parse = fn(&[u8]) -> nom::IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;
    let (parse, head_len): (Parse, usize) = if header.is_modified_format() {
        (parse_pcap_frame_modified, 24)
    } else if header.is_bigendian() {
        (parse_pcap_frame_be, 16)
    } else {
        (parse_pcap_frame, 16)
    };
    let (rest, frame) = parse(data)?;
    let unit_ns = if header.is_nanosecond_precision() { 1 } else { 1000 };
    let found = Found {
        time_ns: Some(
            u128::from(frame.ts_sec) * 1_000_000_000 + u128::from(frame.ts_usec) * unit_ns,
        ),
        // The upper bits tell the length of a frame check sequence.
        link_type: header.network.0 as u32 & 0xffff,
        from: head_len,
        len: frame.data.len(),
        original_len: frame.origlen,
        comment: None,
    };
    Ok((data.len() - rest.len(), Step::Packet(found)))
}

/// The length and meaning of a pcapng block.
fn ng_step(data: &[u8], big_endian: bool, interfaces: &[Interface]) -> Result<(usize, Step), Stop> {
    if let Some(more) = SECTION_HEADER.len().checked_sub(data.len()).filter(|&more| more > 0) {
        return Err(Stop::Incomplete(more));
    }
    // A section header tells its own byte order, whatever the section before had.
    if data.starts_with(&SECTION_HEADER) {
        let (rest, section) = parse_sectionheaderblock(data)?;
        return Ok((data.len() - rest.len(), Step::Section { big_endian: section.big_endian() }));
    }
    let (rest, block) = if big_endian { parse_block_be(data)? } else { parse_block_le(data)? };
    let step = match block {
        Block::InterfaceDescription(block) => Step::Interface(described(&block, big_endian)),
        Block::EnhancedPacket(block) => enhanced(&block, interfaces),
        Block::SimplePacket(block) => simple(&block, interfaces),
        _ => Step::Other,
    };
    Ok((data.len() - rest.len(), step))
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

fn enhanced(block: &EnhancedPacketBlock<'_>, interfaces: &[Interface]) -> Step {
    let number = usize::try_from(block.if_id).unwrap_or(usize::MAX);
    let Some(interface) = interfaces.get(number) else {
        return Step::NoInterface { interface: block.if_id };
    };
    // An option's value stands there with its padding; its bytes are those that count.
    let comment = block.options.iter().find(|option| option.code == OptionCode::Comment);
    let comment = comment.and_then(|option| option.as_bytes().ok());
    let ticks = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
    Step::Packet(Found {
        time_ns: interface.time_ns(ticks),
        link_type: interface.link_type,
        from: ENHANCED_HEAD_LEN,
        len: block.packet_data().len(),
        original_len: block.origlen,
        comment: comment.map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
    })
}

/// A simple packet block: of the first interface, without a time, as long as the snap length lets
/// it be.
fn simple(block: &SimplePacketBlock<'_>, interfaces: &[Interface]) -> Step {
    let Some(interface) = interfaces.first() else {
        return Step::NoInterface { interface: 0 };
    };
    let snap_len = if interface.snap_len == 0 { usize::MAX } else { interface.snap_len as usize };
    Step::Packet(Found {
        time_ns: None,
        link_type: interface.link_type,
        from: SIMPLE_HEAD_LEN,
        len: block.packet_data().len().min(snap_len),
        original_len: block.origlen,
        comment: None,
    })
}

impl Interface {
    /// Nanoseconds since 1970 of a time stamp; `None` if that is no time.
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
