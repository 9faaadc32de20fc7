//! The opcode table: everything that the first byte of a BTH defines.
//!
//! Each row states service, kind, position in the message and extension headers of an opcode. The
//! compiler derives the rest of [`OpcodeInfo`] from the row. `stack/device/src/qp/headers.rs` maps
//! the operations of programs to opcodes.
//!
//! Sources: IBTA vol. 1 table 38 (opcodes and headers), A14 (XRC), A17 (CNP), A19 (ATOMIC WRITE,
//! FLUSH); Linux `include/rdma/ib_pack.h` for the numbers.
//!
//! Not supported:
//!
//! - Reliable Datagram (0x40..=0x5f), see [`OpcodeError`].
//! - Masked atomics (`IB_WR_MASKED_ATOMIC_*` of the kernel's `ib_verbs.h`, served by the mlx4 and
//!   mlx5 drivers). IBTA assigns no opcode to them, their encoding on the wire is not published,
//!   and neither `rdma_rxe` nor libibverbs has them.

use std::fmt;

use crate::header::Header;

bitflags::bitflags! {
    /// A set of extension headers. On the wire they follow the BTH in bit order, lowest bit first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct HeaderSet: u16 {
        /// XRC extended transport header (4 bytes).
        const XRCETH = 1 << 0;
        /// Datagram extended transport header (8 bytes).
        const DETH = 1 << 1;
        /// Flush extended transport header (4 bytes).
        const FETH = 1 << 2;
        /// RDMA extended transport header (16 bytes).
        const RETH = 1 << 3;
        /// Atomic extended transport header (28 bytes).
        const ATOMIC_ETH = 1 << 4;
        /// ACK extended transport header (4 bytes).
        const AETH = 1 << 5;
        /// Atomic ACK extended transport header (8 bytes).
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data (4 bytes).
        const IMM = 1 << 7;
        /// Invalidate extended transport header (4 bytes).
        const IETH = 1 << 8;
    }
}

/// All extension headers in wire order, with their lengths.
const HEADER_LENS: [(HeaderSet, usize); 9] = [
    (HeaderSet::XRCETH, Header::XrcEth.wire_len()),
    (HeaderSet::DETH, Header::Deth.wire_len()),
    (HeaderSet::FETH, Header::Feth.wire_len()),
    (HeaderSet::RETH, Header::Reth.wire_len()),
    (HeaderSet::ATOMIC_ETH, Header::AtomicEth.wire_len()),
    (HeaderSet::AETH, Header::Aeth.wire_len()),
    (HeaderSet::ATOMIC_ACK_ETH, Header::AtomicAckEth.wire_len()),
    (HeaderSet::IMM, Header::ImmDt.wire_len()),
    (HeaderSet::IETH, Header::Ieth.wire_len()),
];

impl HeaderSet {
    /// Returns the length of these headers in bytes, without the BTH.
    #[must_use]
    pub const fn wire_len(self) -> usize {
        self.len_before(Self::from_bits_retain(1 << 9))
    }

    /// Returns the length of those headers in the set that precede `header` on the wire.
    const fn len_before(self, header: Self) -> usize {
        let mut sum = 0;
        let mut i = 0;
        while i < HEADER_LENS.len() {
            let (h, len) = HEADER_LENS[i];
            if self.bits() & h.bits() != 0 && h.bits() < header.bits() {
                sum += len;
            }
            i += 1;
        }
        sum
    }
}

/// The transport service of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification, for a queue pair of any service.
    Cnp,
}

/// The position of a packet within its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// A packet between the first and the last.
    Middle,
    /// The last of several packets.
    Last,
    /// The only packet of the message.
    Only,
}

impl Position {
    /// Returns whether the packet starts a message (FIRST or ONLY).
    #[must_use]
    pub const fn is_start(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns whether the packet ends a message (LAST or ONLY).
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Returns whether a packet at this position may carry `payload_len` bytes.
    ///
    /// FIRST and MIDDLE packets must fill the path MTU, a LAST packet must not be empty, and no
    /// packet may exceed the MTU (IBTA vol. 1, 9.7.4.1.4 to 9.7.4.1.6).
    #[must_use]
    pub const fn fits(self, payload_len: usize, mtu: usize) -> bool {
        match self {
            Self::First | Self::Middle => payload_len == mtu,
            Self::Last => payload_len >= 1 && payload_len <= mtu,
            Self::Only => payload_len <= mtu,
        }
    }
}

/// The operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND, with or without immediate data or a key to invalidate.
    Send,
    /// RDMA WRITE, with or without immediate data.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// ACK, RNR NAK or NAK, as the AETH states.
    Ack,
    /// Response to an atomic, with the original value.
    AtomicAck,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Write of eight bytes as one unit.
    AtomicWrite,
    /// FLUSH of earlier writes to global visibility or persistence.
    Flush,
    /// Congestion notification.
    Cnp,
}

impl Kind {
    /// Returns whether the packet goes from requester to responder.
    #[must_use]
    pub const fn is_request(self) -> bool {
        !matches!(self, Self::ReadResponse | Self::Ack | Self::AtomicAck | Self::Cnp)
    }

    /// Returns whether the packet goes from responder to requester. A CNP is neither request nor
    /// response.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse | Self::Ack | Self::AtomicAck)
    }

    /// Returns whether the packet is a compare and swap or a fetch and add. The responder executes
    /// these at most once and answers with an atomic ACK.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }
}

/// The payload that an opcode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// No payload.
    None,
    /// 0 ..= the path MTU. The queue pair must check that FIRST and MIDDLE packets fill the MTU.
    Any,
    /// This number of bytes: the value of an ATOMIC WRITE, the reserved field of a CNP.
    Exactly(u8),
}

/// A row of the opcode table, with everything that follows from the row.
#[derive(Debug)]
pub struct OpcodeInfo {
    /// The opcode.
    pub opcode: Opcode,
    /// Service and operation, for example `RC RDMA_WRITE_ONLY_IMM`.
    pub name: &'static str,
    /// The transport service.
    pub service: Service,
    /// The operation.
    pub kind: Kind,
    /// The position of the packet within its message.
    pub position: Position,
    /// Extension headers after the BTH.
    pub headers: HeaderSet,
    /// The payload that the opcode allows.
    pub payload: PayloadRule,
    /// Whether the responder takes a receive WQE for this packet: SEND FIRST and ONLY, WRITE LAST
    /// and ONLY with immediate data.
    pub needs_recv_wqe: bool,
    /// Whether the responder completes a receive WQE with this packet: SEND LAST and ONLY, WRITE
    /// LAST and ONLY with immediate data.
    pub completes_recv_wqe: bool,
    /// Whether the packet goes from requester to responder.
    pub is_request: bool,
    /// Whether the packet goes from responder to requester.
    pub is_response: bool,
    headers_len: u8,
    /// Offset of each header from the start of the BTH, by bit number of [`HeaderSet`]. Entries of
    /// absent headers have no meaning.
    offsets: [u8; 9],
}

impl OpcodeInfo {
    const fn new(
        opcode: Opcode,
        name: &'static str,
        service: Service,
        kind: Kind,
        position: Position,
        headers: HeaderSet,
    ) -> Self {
        let is_request = kind.is_request();
        // Every XRC request names a shared receive queue (IBTA A14.4), responses do not.
        let headers = if matches!(service, Service::Xrc) && is_request {
            headers.union(HeaderSet::XRCETH)
        } else {
            headers
        };
        let payload = match kind {
            Kind::Send | Kind::Write | Kind::ReadResponse => PayloadRule::Any,
            Kind::AtomicWrite => PayloadRule::Exactly(8),
            Kind::Cnp => PayloadRule::Exactly(16),
            _ => PayloadRule::None,
        };
        let write_imm = matches!(kind, Kind::Write) && headers.contains(HeaderSet::IMM);
        let is_send = matches!(kind, Kind::Send);
        let mut offsets = [0; 9];
        let mut i = 0;
        while i < HEADER_LENS.len() {
            offsets[i] = (Header::Bth.wire_len() + headers.len_before(HEADER_LENS[i].0)) as u8;
            i += 1;
        }
        Self {
            opcode,
            name,
            service,
            kind,
            position,
            headers,
            payload,
            needs_recv_wqe: write_imm || (is_send && position.is_start()),
            completes_recv_wqe: write_imm || (is_send && position.is_end()),
            is_request,
            is_response: kind.is_response(),
            headers_len: (Header::Bth.wire_len() + headers.wire_len()) as u8,
            offsets,
        }
    }

    /// Returns the length of BTH and extension headers in bytes, which is the offset of the
    /// payload.
    #[must_use]
    pub const fn headers_len(&self) -> usize {
        self.headers_len as usize
    }

    /// Returns whether packets of this opcode may carry payload.
    #[must_use]
    pub const fn has_payload(&self) -> bool {
        !matches!(self.payload, PayloadRule::None)
    }

    /// Returns whether the opcode has all of `headers`.
    #[must_use]
    pub const fn has(&self, headers: HeaderSet) -> bool {
        self.headers.contains(headers)
    }

    /// Returns the offset of `header` from the start of the BTH, or `None` if the opcode does not
    /// have exactly that one header.
    #[must_use]
    pub const fn offset(&self, header: HeaderSet) -> Option<usize> {
        if header.bits().count_ones() == 1 && self.headers.contains(header) {
            Some(self.offsets[header.bits().trailing_zeros() as usize] as usize)
        } else {
            None
        }
    }
}

/// The error for a byte that is not a supported opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OpcodeError {
    /// The opcode belongs to Reliable Datagram.
    #[error("opcode {0:#04x} belongs to Reliable Datagram, which is not supported")]
    ReliableDatagram(u8),
    /// The opcode is reserved or manufacturer-defined.
    #[error("opcode {0:#04x} is not defined")]
    Unknown(u8),
}

/// Generates the enum and the table from the rows. XRC has the same operations as RC and differs
/// only in the service bits. The row of an RC opcode ends with the name of the XRC opcode.
macro_rules! opcodes {
    (
        rc_and_xrc {$(
            $code:literal $rc:ident $name:literal $kind:ident $position:ident [$($header:ident)*]
            $xrc:ident;
        )*}
        others {$(
            $other_code:literal $other:ident $other_name:literal
            $service:ident $other_kind:ident $other_position:ident [$($other_header:ident)*];
        )*}
    ) => {
        /// An opcode of a BTH: the service in the upper three bits, the operation in the lower
        /// five.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)] // the names are the specification's
        pub enum Opcode {
            $($rc = $code,)*
            $($other = $other_code,)*
            $($xrc = XRC | $code,)*
        }

        /// All opcodes, in numeric order.
        static TABLE: [OpcodeInfo; COUNT] = [
            $(OpcodeInfo::new(
                Opcode::$rc, concat!("RC ", $name), Service::Rc, Kind::$kind, Position::$position,
                HeaderSet::empty()$(.union(HeaderSet::$header))*,
            ),)*
            $(OpcodeInfo::new(
                Opcode::$other, $other_name, Service::$service, Kind::$other_kind,
                Position::$other_position, HeaderSet::empty()$(.union(HeaderSet::$other_header))*,
            ),)*
            $(OpcodeInfo::new(
                Opcode::$xrc, concat!("XRC ", $name), Service::Xrc, Kind::$kind,
                Position::$position, HeaderSet::empty()$(.union(HeaderSet::$header))*,
            ),)*
        ];

        const CODES: &[u8] = &[$($code,)* $($other_code,)* $(XRC | $code,)*];
    };
}

/// The service bits of an opcode, and their value for XRC.
const SERVICE: u8 = 0xe0;
const XRC: u8 = 0xa0;

opcodes! {
    rc_and_xrc {
        0x00 RcSendFirst          "SEND_FIRST"                Send First []
             XrcSendFirst;
        0x01 RcSendMiddle         "SEND_MIDDLE"               Send Middle []
             XrcSendMiddle;
        0x02 RcSendLast           "SEND_LAST"                 Send Last []
             XrcSendLast;
        0x03 RcSendLastImm        "SEND_LAST_IMM"             Send Last [IMM]
             XrcSendLastImm;
        0x04 RcSendOnly           "SEND_ONLY"                 Send Only []
             XrcSendOnly;
        0x05 RcSendOnlyImm        "SEND_ONLY_IMM"             Send Only [IMM]
             XrcSendOnlyImm;
        0x06 RcWriteFirst         "RDMA_WRITE_FIRST"          Write First [RETH]
             XrcWriteFirst;
        0x07 RcWriteMiddle        "RDMA_WRITE_MIDDLE"         Write Middle []
             XrcWriteMiddle;
        0x08 RcWriteLast          "RDMA_WRITE_LAST"           Write Last []
             XrcWriteLast;
        0x09 RcWriteLastImm       "RDMA_WRITE_LAST_IMM"       Write Last [IMM]
             XrcWriteLastImm;
        0x0a RcWriteOnly          "RDMA_WRITE_ONLY"           Write Only [RETH]
             XrcWriteOnly;
        0x0b RcWriteOnlyImm       "RDMA_WRITE_ONLY_IMM"       Write Only [RETH IMM]
             XrcWriteOnlyImm;
        0x0c RcReadRequest        "RDMA_READ_REQUEST"         ReadRequest Only [RETH]
             XrcReadRequest;
        0x0d RcReadResponseFirst  "RDMA_READ_RESPONSE_FIRST"  ReadResponse First [AETH]
             XrcReadResponseFirst;
        0x0e RcReadResponseMiddle "RDMA_READ_RESPONSE_MIDDLE" ReadResponse Middle []
             XrcReadResponseMiddle;
        0x0f RcReadResponseLast   "RDMA_READ_RESPONSE_LAST"   ReadResponse Last [AETH]
             XrcReadResponseLast;
        0x10 RcReadResponseOnly   "RDMA_READ_RESPONSE_ONLY"   ReadResponse Only [AETH]
             XrcReadResponseOnly;
        0x11 RcAcknowledge        "ACKNOWLEDGE"               Ack Only [AETH]
             XrcAcknowledge;
        0x12 RcAtomicAcknowledge  "ATOMIC_ACKNOWLEDGE"        AtomicAck Only [AETH ATOMIC_ACK_ETH]
             XrcAtomicAcknowledge;
        0x13 RcCompareSwap        "COMPARE_SWAP"              CompareSwap Only [ATOMIC_ETH]
             XrcCompareSwap;
        0x14 RcFetchAdd           "FETCH_ADD"                 FetchAdd Only [ATOMIC_ETH]
             XrcFetchAdd;
        0x16 RcSendLastInv        "SEND_LAST_INV"             Send Last [IETH]
             XrcSendLastInv;
        0x17 RcSendOnlyInv        "SEND_ONLY_INV"             Send Only [IETH]
             XrcSendOnlyInv;
        0x1c RcFlush              "FLUSH"                     Flush Only [FETH RETH]
             XrcFlush;
        0x1d RcAtomicWrite        "ATOMIC_WRITE"              AtomicWrite Only [RETH]
             XrcAtomicWrite;
    }
    others {
        0x20 UcSendFirst      "UC SEND_FIRST"           Uc  Send First [];
        0x21 UcSendMiddle     "UC SEND_MIDDLE"          Uc  Send Middle [];
        0x22 UcSendLast       "UC SEND_LAST"            Uc  Send Last [];
        0x23 UcSendLastImm    "UC SEND_LAST_IMM"        Uc  Send Last [IMM];
        0x24 UcSendOnly       "UC SEND_ONLY"            Uc  Send Only [];
        0x25 UcSendOnlyImm    "UC SEND_ONLY_IMM"        Uc  Send Only [IMM];
        0x26 UcWriteFirst     "UC RDMA_WRITE_FIRST"     Uc  Write First [RETH];
        0x27 UcWriteMiddle    "UC RDMA_WRITE_MIDDLE"    Uc  Write Middle [];
        0x28 UcWriteLast      "UC RDMA_WRITE_LAST"      Uc  Write Last [];
        0x29 UcWriteLastImm   "UC RDMA_WRITE_LAST_IMM"  Uc  Write Last [IMM];
        0x2a UcWriteOnly      "UC RDMA_WRITE_ONLY"      Uc  Write Only [RETH];
        0x2b UcWriteOnlyImm   "UC RDMA_WRITE_ONLY_IMM"  Uc  Write Only [RETH IMM];

        0x64 UdSendOnly       "UD SEND_ONLY"            Ud  Send Only [DETH];
        0x65 UdSendOnlyImm    "UD SEND_ONLY_IMM"        Ud  Send Only [DETH IMM];

        0x81 Cnp              "CNP"                     Cnp Cnp Only [];
    }
}

/// The number of supported opcodes.
const COUNT: usize = CODES.len();

/// The entry of [`ROWS`] for a byte without an opcode.
const NONE: u8 = u8::MAX;

/// The row of [`TABLE`] for each opcode byte, or [`NONE`].
static ROWS: [u8; 256] = {
    let mut rows = [NONE; 256];
    let mut i = 0;
    while i < COUNT {
        rows[CODES[i] as usize] = i as u8;
        i += 1;
    }
    rows
};

impl Opcode {
    /// Returns the XRC opcode of the same operation, if this is an RC opcode. Any other opcode is
    /// returned unchanged.
    #[must_use]
    #[inline]
    pub fn over_xrc(self) -> Self {
        if self as u8 & SERVICE != 0 {
            return self;
        }
        Self::lookup(self as u8 | XRC).map_or(self, |info| info.opcode)
    }

    /// Returns the table row of the opcode. This takes two table look-ups.
    #[must_use]
    #[inline]
    pub fn info(self) -> &'static OpcodeInfo {
        // The macro that generates the variants also generates their rows, so the index is in
        // range.
        &TABLE[ROWS[self as usize] as usize]
    }

    /// Returns the table row of an opcode byte, or `None` if the byte is not an opcode.
    ///
    /// This takes one look-up less than `try_from` followed by [`info`](Self::info).
    #[must_use]
    #[inline]
    pub fn lookup(byte: u8) -> Option<&'static OpcodeInfo> {
        TABLE.get(ROWS[byte as usize] as usize)
    }

    /// Returns all opcodes, in numeric order.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        TABLE.iter().map(|row| row.opcode)
    }

    /// Returns the byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self as u8
    }
}

impl TryFrom<u8> for Opcode {
    type Error = OpcodeError;

    #[inline]
    fn try_from(byte: u8) -> Result<Self, OpcodeError> {
        match Self::lookup(byte) {
            Some(row) => Ok(row.opcode),
            None if (0x40..0x60).contains(&byte) => Err(OpcodeError::ReliableDatagram(byte)),
            None => Err(OpcodeError::Unknown(byte)),
        }
    }
}

impl From<Opcode> for u8 {
    fn from(opcode: Opcode) -> u8 {
        opcode as u8
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.info().name)
    }
}

#[cfg(test)]
mod tests;
