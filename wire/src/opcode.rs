//! The opcode table: everything that follows from the first byte of a BTH.
//!
//! One row an opcode says its service, kind, position in the message, extension headers and payload
//! rule; everything else ([`OpcodeInfo`]) is computed from the row when the crate is compiled.
//! Nothing else in the project lists opcodes.
//!
//! Sources: IBTA vol. 1 table 38 (opcodes and headers), A14 (XRC), A17 (CNP), A19 (ATOMIC WRITE,
//! FLUSH); Linux `include/rdma/ib_pack.h` for the numbers. Reliable Datagram (0x40..=0x5f) is not
//! supported: [`OpcodeError`].
//!
//! There are no masked atomics (`IB_WR_MASKED_ATOMIC_*` of the kernel's `ib_verbs.h`, which the
//! mlx4 and mlx5 drivers serve): the table gives them no opcode, `rdma_rxe` has none, how those
//! adapters write them on the wire is not published, and libibverbs has no work request that would
//! ask for one. With numbers of our own, urxe could only speak with urxe.

use std::fmt;

use crate::header::Header;

bitflags::bitflags! {
    /// Which extension headers follow the BTH. They stand on the wire in the order of the bits,
    /// lowest first.
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

/// Headers in wire order, with their lengths.
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
    /// Bytes of these headers together, without the BTH.
    #[must_use]
    pub const fn wire_len(self) -> usize {
        self.len_before(Self::from_bits_retain(1 << 9))
    }

    /// Bytes of those headers of the set that stand before `header` on the wire.
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

/// The transport service an opcode belongs to.
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
    /// Congestion notification: to a queue pair of any service.
    Cnp,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// First or Only.
    #[must_use]
    pub const fn is_start(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Last or Only.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Whether a packet here may carry so much payload: FIRST and MIDDLE fill the path MTU, LAST is
    /// not empty, none is longer (IBTA vol. 1, 9.7.4.1.4 to 9.7.4.1.6).
    #[must_use]
    pub const fn fits(self, payload_len: usize, mtu: usize) -> bool {
        match self {
            Self::First | Self::Middle => payload_len == mtu,
            Self::Last => payload_len >= 1 && payload_len <= mtu,
            Self::Only => payload_len <= mtu,
        }
    }
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND, with or without immediate or invalidate.
    Send,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// ACK, RNR NAK or NAK, as the AETH says.
    Ack,
    /// Answer of an atomic, with the original value.
    AtomicAck,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Eight bytes written as one.
    AtomicWrite,
    /// FLUSH of earlier writes to visibility or persistence.
    Flush,
    /// Congestion notification.
    Cnp,
}

impl Kind {
    /// Whether such packets go from requester to responder.
    #[must_use]
    pub const fn is_request(self) -> bool {
        !matches!(self, Self::ReadResponse | Self::Ack | Self::AtomicAck | Self::Cnp)
    }

    /// Whether such packets go from responder to requester. A CNP is neither request nor response.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse | Self::Ack | Self::AtomicAck)
    }

    /// Compare and swap or fetch and add: executed at most once, answered by an atomic ACK.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }
}

/// How much payload an opcode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// None at all.
    None,
    /// 0 ..= the path MTU. That FIRST and MIDDLE fill the MTU is for who knows the MTU to check.
    Any,
    /// Exactly so many bytes: ATOMIC WRITE's value, the reserved field of a CNP.
    Exactly(u8),
}

/// A row of the table, and what follows from it.
#[derive(Debug)]
pub struct OpcodeInfo {
    /// The opcode itself.
    pub opcode: Opcode,
    /// Service and operation, as in `RC RDMA_WRITE_ONLY_IMM`.
    pub name: &'static str,
    /// The service it belongs to.
    pub service: Service,
    /// What it does.
    pub kind: Kind,
    /// Where in its message it stands.
    pub position: Position,
    /// Extension headers after the BTH.
    pub headers: HeaderSet,
    /// Payload allowed.
    pub payload: PayloadRule,
    /// The responder takes a receive WQE from the queue when this packet arrives: SEND FIRST and
    /// ONLY, WRITE LAST and ONLY with immediate.
    pub needs_recv_wqe: bool,
    /// The responder completes a receive WQE with this packet: SEND LAST and ONLY, WRITE LAST and
    /// ONLY with immediate.
    pub completes_recv_wqe: bool,
    /// Goes from requester to responder.
    pub is_request: bool,
    /// Goes from responder to requester.
    pub is_response: bool,
    headers_len: u8,
    /// Offset of each header from the start of the BTH, by bit number of [`HeaderSet`]; only those
    /// present mean something.
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
        // Every XRC request names the shared receive queue (IBTA A14.4); responses do not.
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

    /// Bytes of BTH and extension headers: where the payload begins.
    #[must_use]
    pub const fn headers_len(&self) -> usize {
        self.headers_len as usize
    }

    /// Whether packets of this opcode may carry payload.
    #[must_use]
    pub const fn has_payload(&self) -> bool {
        !matches!(self.payload, PayloadRule::None)
    }

    /// Whether the headers hold all of `headers`.
    #[must_use]
    pub const fn has(&self, headers: HeaderSet) -> bool {
        self.headers.contains(headers)
    }

    /// Offset of one header from the start of the BTH, if the opcode has it.
    #[must_use]
    pub const fn offset(&self, header: HeaderSet) -> Option<usize> {
        if header.bits().count_ones() == 1 && self.headers.contains(header) {
            Some(self.offsets[header.bits().trailing_zeros() as usize] as usize)
        } else {
            None
        }
    }
}

/// A byte that is no opcode of this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OpcodeError {
    /// An opcode of Reliable Datagram, which nobody implements.
    #[error("opcode {0:#04x} is of Reliable Datagram, which is not supported")]
    ReliableDatagram(u8),
    /// Reserved, or the manufacturer's own.
    #[error("opcode {0:#04x} is not defined")]
    Unknown(u8),
}

/// Generates the enum and the table from the rows. XRC has the operations of RC, with other bits
/// for the service.
macro_rules! opcodes {
    (
        rc_and_xrc {$(
            $code:literal $rc:ident $xrc:ident $name:literal $kind:ident $position:ident [$($header:ident)*];
        )*}
        others {$(
            $other_code:literal $other:ident $other_name:literal
            $service:ident $other_kind:ident $other_position:ident [$($other_header:ident)*];
        )*}
    ) => {
        /// An opcode of a BTH: service in the upper three bits, operation in the lower five.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)] // the names are the specification's
        pub enum Opcode {
            $($rc = $code,)*
            $($other = $other_code,)*
            $($xrc = XRC | $code,)*
        }

        /// Every opcode, in numeric order.
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

/// The bits of a byte that say the service, and their value for XRC.
const SERVICE: u8 = 0xe0;
const XRC: u8 = 0xa0;

opcodes! {
    rc_and_xrc {
        0x00 RcSendFirst          XrcSendFirst          "SEND_FIRST"                  Send First [];
        0x01 RcSendMiddle         XrcSendMiddle         "SEND_MIDDLE"                 Send Middle [];
        0x02 RcSendLast           XrcSendLast           "SEND_LAST"                   Send Last [];
        0x03 RcSendLastImm        XrcSendLastImm        "SEND_LAST_IMM"               Send Last [IMM];
        0x04 RcSendOnly           XrcSendOnly           "SEND_ONLY"                   Send Only [];
        0x05 RcSendOnlyImm        XrcSendOnlyImm        "SEND_ONLY_IMM"               Send Only [IMM];
        0x06 RcWriteFirst         XrcWriteFirst         "RDMA_WRITE_FIRST"            Write First [RETH];
        0x07 RcWriteMiddle        XrcWriteMiddle        "RDMA_WRITE_MIDDLE"           Write Middle [];
        0x08 RcWriteLast          XrcWriteLast          "RDMA_WRITE_LAST"             Write Last [];
        0x09 RcWriteLastImm       XrcWriteLastImm       "RDMA_WRITE_LAST_IMM"         Write Last [IMM];
        0x0a RcWriteOnly          XrcWriteOnly          "RDMA_WRITE_ONLY"             Write Only [RETH];
        0x0b RcWriteOnlyImm       XrcWriteOnlyImm       "RDMA_WRITE_ONLY_IMM"         Write Only [RETH IMM];
        0x0c RcReadRequest        XrcReadRequest        "RDMA_READ_REQUEST"           ReadRequest Only [RETH];
        0x0d RcReadResponseFirst  XrcReadResponseFirst  "RDMA_READ_RESPONSE_FIRST"    ReadResponse First [AETH];
        0x0e RcReadResponseMiddle XrcReadResponseMiddle "RDMA_READ_RESPONSE_MIDDLE"   ReadResponse Middle [];
        0x0f RcReadResponseLast   XrcReadResponseLast   "RDMA_READ_RESPONSE_LAST"     ReadResponse Last [AETH];
        0x10 RcReadResponseOnly   XrcReadResponseOnly   "RDMA_READ_RESPONSE_ONLY"     ReadResponse Only [AETH];
        0x11 RcAcknowledge        XrcAcknowledge        "ACKNOWLEDGE"                 Ack Only [AETH];
        0x12 RcAtomicAcknowledge  XrcAtomicAcknowledge  "ATOMIC_ACKNOWLEDGE"          AtomicAck Only [AETH ATOMIC_ACK_ETH];
        0x13 RcCompareSwap        XrcCompareSwap        "COMPARE_SWAP"                CompareSwap Only [ATOMIC_ETH];
        0x14 RcFetchAdd           XrcFetchAdd           "FETCH_ADD"                   FetchAdd Only [ATOMIC_ETH];
        0x16 RcSendLastInv        XrcSendLastInv        "SEND_LAST_INV"               Send Last [IETH];
        0x17 RcSendOnlyInv        XrcSendOnlyInv        "SEND_ONLY_INV"               Send Only [IETH];
        0x1c RcFlush              XrcFlush              "FLUSH"                       Flush Only [FETH RETH];
        0x1d RcAtomicWrite        XrcAtomicWrite        "ATOMIC_WRITE"                AtomicWrite Only [RETH];
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

/// Number of opcodes known.
const COUNT: usize = CODES.len();

/// Marks a byte that is no opcode.
const NONE: u8 = u8::MAX;

/// Row of [`TABLE`] by opcode byte, or [`NONE`].
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
    /// The same operation of XRC, if this is one of RC: they differ in the service bits alone. Any
    /// other opcode stays itself.
    #[must_use]
    #[inline]
    pub fn over_xrc(self) -> Self {
        if self as u8 & SERVICE != 0 {
            return self;
        }
        Self::lookup(self as u8 | XRC).map_or(self, |info| info.opcode)
    }

    /// Everything known about the opcode: two table look-ups.
    #[must_use]
    #[inline]
    pub fn info(self) -> &'static OpcodeInfo {
        // Every variant has a row, since both come from the same macro: the index is always in
        // range.
        &TABLE[ROWS[self as usize] as usize]
    }

    /// The row of an opcode byte as it came from the wire, or `None`: one look-up less than
    /// `try_from` then `info`.
    #[must_use]
    #[inline]
    pub fn lookup(byte: u8) -> Option<&'static OpcodeInfo> {
        TABLE.get(ROWS[byte as usize] as usize)
    }

    /// Every opcode there is, in numeric order.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        TABLE.iter().map(|row| row.opcode)
    }

    /// The byte on the wire.
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
