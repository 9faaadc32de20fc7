//! Whole packets, from BTH to ICRC: the payload of a UDP datagram to port 4791.
//!
//! - [`PacketView`] borrows received bytes. [`PacketView::parse`] checks lengths, version, opcode
//!   and pad once. After that, each accessor reads its field in place, at an offset from the opcode
//!   table. Headers that the caller does not read cost nothing.
//! - [`PacketView::parse_shared`] does the same for a packet in memory that another process can
//!   change. The view has a private copy of the headers, and the payload stays where it is.
//! - [`PacketRepr`] owns the headers as plain values, for emitting. A value with the extension
//!   headers of its opcode can always be emitted, and the result parses to the same value.
//!
//! The payload does not pass through this module. A sender emits the headers
//! ([`PacketRepr::emit_headers`]), copies the payload after them, zeroes the pad ([`emit_pad`]) and
//! appends the ICRC ([`crate::IcrcSeed::append`]).
//!
//! ```text
//! | BTH 12 | extension headers 0..=36 | payload 0..=4096 | pad 0..=3 | ICRC 4 |
//! |<------ info.headers_len() ------->|                              |
//! |<------------------ covered by the ICRC ------------------------->|
//! ```
//!
//! The queue pair must check that FIRST and MIDDLE packets fill the path MTU, and that the length
//! in the RETH matches the payload.

use std::sync::atomic::AtomicU8;

use crate::bytes::{at, be16};
use crate::error::{EmitError, ParseError};
use crate::opcode::{HeaderSet, OpcodeInfo, PayloadRule};
use crate::payload::Payload;
use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Opcode, PKey, Psn, Qpn, Reth,
    XrcEth,
};

/// The length of the ICRC at the end of every packet, in bytes.
pub const ICRC_LEN: usize = 4;
/// The largest path MTU in bytes, which limits the payload of a packet.
pub const MAX_PAYLOAD: usize = 4096;
/// The largest length of BTH and extension headers in bytes: XRC COMPARE SWAP.
pub const MAX_HEADERS_LEN: usize = Bth::LEN + XrcEth::LEN + AtomicEth::LEN;
/// The length of the longest packet that parses, in bytes.
pub const MAX_PACKET_LEN: usize = MAX_HEADERS_LEN + MAX_PAYLOAD + ICRC_LEN;

/// Returns the pad count for a payload of this length: 0 ..= 3.
#[must_use]
pub const fn pad_count(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Returns the length of a packet with these headers and payload, including pad and ICRC.
#[must_use]
pub const fn packet_len(headers_len: usize, payload_len: usize) -> usize {
    headers_len + payload_len + pad_count(payload_len) as usize + ICRC_LEN
}

/// Zeroes the pad after a payload that ends at `end`. Returns the offset of the ICRC, or `None` if
/// `buf` is too short.
#[must_use]
pub fn emit_pad(buf: &mut [u8], end: usize) -> Option<usize> {
    // Headers are multiples of four bytes long, so the end of the payload determines the pad.
    let padded = end.checked_add(3)? & !3;
    buf.get_mut(end..padded)?.fill(0);
    Some(padded)
}

/// Defines methods that return the extension headers of a packet.
macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident: $header:ident, $bit:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        #[inline]
        pub fn $name(&self) -> Option<$header> {
            $header::parse(self.header(HeaderSet::$bit)?).ok()
        }
    )*};
}

/// A received packet whose shape [`parse`](Self::parse) has checked.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    /// The whole packet, or a copy of its first bytes if the payload is shared.
    bytes: &'a [u8],
    info: &'static OpcodeInfo,
    payload: Payload<'a>,
}

/// The shape of a packet: its row of the opcode table, and the end of its payload before the pad.
type Shape = (&'static OpcodeInfo, usize);

impl<'a> PacketView<'a> {
    /// Checks the shape of a packet, which must include the ICRC. Does not verify the ICRC.
    ///
    /// # Errors
    /// Fails with any variant of [`ParseError`] except `ShortHeader` and `BadGrhVersion`. The order
    /// of the checks is fixed, so a packet with several faults always yields the same reason.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (info, payload_end) = shape(bytes, bytes.len())?;
        let payload = Payload::Private(&bytes[info.headers_len()..payload_end]);
        Ok(Self { bytes, info, payload })
    }

    /// Checks the shape of a packet in memory that another process can change. `headers` is a copy
    /// of its first bytes: [`MAX_HEADERS_LEN`], or all if the packet is shorter. Only this copy is
    /// parsed, so the headers are the same at each access.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    ///
    /// # Panics
    /// If `headers` is shorter.
    #[inline]
    pub fn parse_shared(headers: &'a [u8], packet: &'a [AtomicU8]) -> Result<Self, ParseError> {
        assert!(headers.len() >= packet.len().min(MAX_HEADERS_LEN), "too few bytes of headers");
        let (info, payload_end) = shape(headers, packet.len())?;
        let payload = Payload::Shared(&packet[info.headers_len()..payload_end]);
        Ok(Self { bytes: headers, info, payload })
    }

    /// Returns the length of the packet from BTH to ICRC, in bytes.
    #[must_use]
    #[inline]
    pub fn packet_len(&self) -> usize {
        packet_len(self.info.headers_len(), self.payload.len())
    }

    /// Returns the opcode's row of the opcode table.
    #[must_use]
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// Returns the opcode.
    #[must_use]
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.info.opcode
    }

    /// Returns the BTH as a value.
    #[must_use]
    pub fn bth(&self) -> Bth {
        Bth::read(self.opcode(), &at(self.bytes, 0))
    }

    /// Returns SE, the solicited event bit.
    #[must_use]
    #[inline]
    pub fn solicited(&self) -> bool {
        self.bytes[1] & 0x80 != 0
    }

    /// Returns M, the path migration state.
    #[must_use]
    #[inline]
    pub fn mig_req(&self) -> bool {
        self.bytes[1] & 0x40 != 0
    }

    /// Returns the number of pad bytes, 0 ..= 3.
    #[must_use]
    #[inline]
    pub fn pad_count(&self) -> u8 {
        (self.bytes[1] >> 4) & 3
    }

    /// Returns the partition key.
    #[must_use]
    #[inline]
    pub fn pkey(&self) -> PKey {
        PKey(be16(self.bytes, 2))
    }

    /// Returns the forward explicit congestion notification bit.
    #[must_use]
    #[inline]
    pub fn fecn(&self) -> bool {
        self.bytes[4] & 0x80 != 0
    }

    /// Returns the backward explicit congestion notification bit.
    #[must_use]
    #[inline]
    pub fn becn(&self) -> bool {
        self.bytes[4] & 0x40 != 0
    }

    /// Returns the destination queue pair.
    #[must_use]
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        Qpn::from_be_bytes(at(self.bytes, 5))
    }

    /// Returns A, whether the sender requests an acknowledgement.
    #[must_use]
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.bytes[8] & 0x80 != 0
    }

    /// Returns the packet sequence number.
    #[must_use]
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::from_be_bytes(at(self.bytes, 9))
    }

    /// Returns the bytes that start with `header`, if the opcode has that header.
    #[inline]
    fn header(&self, header: HeaderSet) -> Option<&'a [u8]> {
        self.bytes.get(self.info.offset(header)?..)
    }

    headers! {
        /// Returns the XRCETH of an XRC request.
        xrceth: XrcEth, XRCETH;
        /// Returns the DETH of a datagram.
        deth: Deth, DETH;
        /// Returns the FETH of a FLUSH.
        feth: Feth, FETH;
        /// Returns the RETH of a WRITE FIRST or ONLY, READ request, ATOMIC WRITE or FLUSH.
        reth: Reth, RETH;
        /// Returns the AtomicETH of a compare and swap or fetch and add.
        atomic_eth: AtomicEth, ATOMIC_ETH;
        /// Returns the AETH of a response.
        aeth: Aeth, AETH;
        /// Returns the AtomicAckETH of the response to an atomic.
        atomic_ack_eth: AtomicAckEth, ATOMIC_ACK_ETH;
        /// Returns the immediate data.
        imm: ImmDt, IMM;
        /// Returns the IETH of a SEND with invalidate.
        ieth: Ieth, IETH;
    }

    /// Returns the payload, without the pad. It is empty if another process can change its bytes
    /// ([`parse_shared`](Self::parse_shared)); [`data`](Self::data) returns those.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        match self.payload {
            Payload::Private(bytes) => bytes,
            Payload::Shared(_) => &[],
        }
    }

    /// Returns the payload, without the pad, wherever its bytes are.
    #[must_use]
    #[inline]
    pub fn data(&self) -> Payload<'a> {
        self.payload
    }

    /// Returns the length of the payload in bytes, without the pad.
    #[must_use]
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// Appends the whole packet to `out`. Pad and ICRC of a packet in shared memory are zeros.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self.payload {
            Payload::Private(_) => out.extend_from_slice(self.bytes),
            Payload::Shared(_) => {
                let end = out.len() + self.packet_len();
                out.extend_from_slice(&self.bytes[..self.info.headers_len()]);
                self.payload.append_to(out);
                out.resize(end, 0);
            }
        }
    }

    /// Returns the received ICRC, which is little-endian on the wire. Packets in shared memory have
    /// none.
    #[must_use]
    #[inline]
    pub fn icrc(&self) -> u32 {
        u32::from_le_bytes(at(self.bytes, self.bytes.len() - ICRC_LEN))
    }

    /// Returns all bytes of the packet, including the ICRC. Of a packet in shared memory, returns
    /// only the first bytes, with the headers.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes that the ICRC covers.
    #[must_use]
    #[inline]
    pub fn without_icrc(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - ICRC_LEN]
    }

    /// Returns the headers as values.
    #[must_use]
    pub fn to_repr(&self) -> PacketRepr {
        let ext = match (self.reth(), self.aeth(), self.imm(), self.deth()) {
            (Some(reth), _, Some(imm), _) => Ext::RethImm(reth, imm),
            (Some(reth), _, None, _) => match self.feth() {
                Some(feth) => Ext::Flush(feth, reth),
                None => Ext::Reth(reth),
            },
            (None, Some(aeth), _, _) => match self.atomic_ack_eth() {
                Some(original) => Ext::AtomicAck(aeth, original),
                None => Ext::Aeth(aeth),
            },
            (None, None, Some(imm), Some(deth)) => Ext::DethImm(deth, imm),
            (None, None, None, Some(deth)) => Ext::Deth(deth),
            (None, None, Some(imm), None) => Ext::Imm(imm),
            (None, None, None, None) => match (self.atomic_eth(), self.ieth()) {
                (Some(atomic), _) => Ext::Atomic(atomic),
                (None, Some(ieth)) => Ext::Ieth(ieth),
                (None, None) => Ext::None,
            },
        };
        PacketRepr { bth: self.bth(), xrceth: self.xrceth(), ext }
    }
}

/// Checks the shape of a packet of `have` bytes. `bytes` are its first bytes, at least a BTH if the
/// packet has one.
#[inline(always)] // called in one place for each kind of memory
fn shape(bytes: &[u8], have: usize) -> Result<Shape, ParseError> {
    if have < Bth::LEN + ICRC_LEN {
        return Err(ParseError::ShortPacket { have });
    }
    let Some(info) = Opcode::lookup(bytes[0]) else {
        return Err(match Opcode::try_from(bytes[0]) {
            Err(e) => e.into(),
            Ok(_) => ParseError::UnknownOpcode(bytes[0]),
        });
    };
    let flags = bytes[1];
    if flags & 0x0f != 0 {
        return Err(ParseError::BadVersion(flags & 0x0f));
    }
    if have % 4 != 0 {
        return Err(ParseError::Unaligned { have });
    }
    let opcode = info.opcode;
    let need = info.headers_len() + ICRC_LEN;
    let Some(padded_len) = have.checked_sub(need) else {
        return Err(ParseError::ShortHeaders { opcode, need, have });
    };
    let pad = (flags >> 4) & 3;
    if pad != 0 && matches!(info.payload, PayloadRule::None) {
        return Err(ParseError::PadWithoutPayload { opcode, pad });
    }
    let Some(payload_len) = padded_len.checked_sub(pad as usize) else {
        return Err(ParseError::PadExceedsPayload { pad, have: padded_len });
    };
    match info.payload {
        PayloadRule::Any if payload_len <= MAX_PAYLOAD => {}
        PayloadRule::Any => return Err(ParseError::PayloadTooLong { have: payload_len }),
        PayloadRule::None if payload_len == 0 => {}
        PayloadRule::None => {
            return Err(ParseError::UnexpectedPayload { opcode, have: payload_len });
        }
        PayloadRule::Exactly(n) if payload_len == n as usize => {}
        PayloadRule::Exactly(n) => {
            return Err(ParseError::PayloadLength { opcode, need: n as usize, have: payload_len });
        }
    }
    Ok((info, info.headers_len() + payload_len))
}

/// The extension headers between BTH and payload, except the XRCETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ext {
    /// No extension header.
    None,
    /// SEND or WRITE LAST with immediate data, or SEND ONLY with immediate data.
    Imm(ImmDt),
    /// SEND with invalidate.
    Ieth(Ieth),
    /// WRITE FIRST or ONLY, READ request, ATOMIC WRITE.
    Reth(Reth),
    /// WRITE ONLY with immediate data.
    RethImm(Reth, ImmDt),
    /// FLUSH.
    Flush(Feth, Reth),
    /// Acknowledgement, or READ response except MIDDLE.
    Aeth(Aeth),
    /// Response to an atomic.
    AtomicAck(Aeth, AtomicAckEth),
    /// Compare and swap, or fetch and add.
    Atomic(AtomicEth),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate data.
    DethImm(Deth, ImmDt),
}

impl Ext {
    /// Returns the set of these headers.
    #[must_use]
    #[inline]
    pub const fn headers(&self) -> HeaderSet {
        match self {
            Self::None => HeaderSet::empty(),
            Self::Imm(_) => HeaderSet::IMM,
            Self::Ieth(_) => HeaderSet::IETH,
            Self::Reth(_) => HeaderSet::RETH,
            Self::RethImm(..) => HeaderSet::RETH.union(HeaderSet::IMM),
            Self::Flush(..) => HeaderSet::FETH.union(HeaderSet::RETH),
            Self::Aeth(_) => HeaderSet::AETH,
            Self::AtomicAck(..) => HeaderSet::AETH.union(HeaderSet::ATOMIC_ACK_ETH),
            Self::Atomic(_) => HeaderSet::ATOMIC_ETH,
            Self::Deth(_) => HeaderSet::DETH,
            Self::DethImm(..) => HeaderSet::DETH.union(HeaderSet::IMM),
        }
    }
}

/// The headers of a packet, for emitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRepr {
    /// Base transport header. The caller must set its pad count, see [`pad_count`].
    pub bth: Bth,
    /// The shared receive queue of an XRC request.
    pub xrceth: Option<XrcEth>,
    /// The other extension headers.
    pub ext: Ext,
}

/// Emits headers to the start of `buf`, one after the other.
macro_rules! emit {
    ($buf:ident, $($header:expr),+) => {{
        $(
            // `emit_headers` compared the headers with the table and cut the buffer to their
            // length.
            if let Some((front, rest)) = std::mem::take(&mut $buf).split_first_chunk_mut() {
                $header.emit(front);
                $buf = rest;
            }
        )+
    }};
}

impl PacketRepr {
    /// Returns the headers of a packet of any service except XRC.
    #[must_use]
    pub const fn new(bth: Bth, ext: Ext) -> Self {
        Self { bth, xrceth: None, ext }
    }

    /// Returns the length of BTH and extension headers in bytes.
    #[must_use]
    pub fn headers_len(&self) -> usize {
        self.bth.opcode.info().headers_len()
    }

    /// Writes BTH and extension headers to the start of `buf`. Returns their length, which is the
    /// offset of the payload.
    ///
    /// # Errors
    /// Writes nothing, and fails with:
    ///
    /// - [`EmitError::HeadersMismatch`]: the extension headers are not those of the opcode.
    /// - [`EmitError::BufferTooSmall`]: `buf` has no space for the headers.
    #[inline]
    pub fn emit_headers(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let info = self.bth.opcode.info();
        let mut headers = self.ext.headers();
        headers.set(HeaderSet::XRCETH, self.xrceth.is_some());
        if headers != info.headers {
            return Err(EmitError::HeadersMismatch { opcode: info.opcode });
        }
        let need = info.headers_len();
        let have = buf.len();
        let Some(mut rest) = buf.get_mut(..need) else {
            return Err(EmitError::BufferTooSmall { need, have });
        };
        emit!(rest, self.bth);
        if let Some(xrceth) = &self.xrceth {
            emit!(rest, xrceth);
        }
        match &self.ext {
            Ext::None => {}
            Ext::Imm(imm) => emit!(rest, imm),
            Ext::Ieth(ieth) => emit!(rest, ieth),
            Ext::Reth(reth) => emit!(rest, reth),
            Ext::RethImm(reth, imm) => emit!(rest, reth, imm),
            Ext::Flush(feth, reth) => emit!(rest, feth, reth),
            Ext::Aeth(aeth) => emit!(rest, aeth),
            Ext::AtomicAck(aeth, original) => emit!(rest, aeth, original),
            Ext::Atomic(atomic) => emit!(rest, atomic),
            Ext::Deth(deth) => emit!(rest, deth),
            Ext::DethImm(deth, imm) => emit!(rest, deth, imm),
        }
        debug_assert!(rest.is_empty());
        Ok(need)
    }

    /// Writes headers, payload and pad to the start of `buf`, and sets the pad count for the
    /// payload. Returns the offset of the ICRC.
    ///
    /// `buf` must also have space for the ICRC.
    ///
    /// # Errors
    /// Fails with any variant of [`EmitError`].
    pub fn emit(&self, payload: &[u8], buf: &mut [u8]) -> Result<usize, EmitError> {
        let info = self.bth.opcode.info();
        let fits = match info.payload {
            PayloadRule::None => payload.is_empty(),
            PayloadRule::Any => payload.len() <= MAX_PAYLOAD,
            PayloadRule::Exactly(n) => payload.len() == n as usize,
        };
        if !fits {
            return Err(EmitError::PayloadLength { opcode: info.opcode, have: payload.len() });
        }
        let need = packet_len(info.headers_len(), payload.len());
        let have = buf.len();
        if have < need {
            return Err(EmitError::BufferTooSmall { need, have });
        }
        let mut repr = *self;
        repr.bth.pad_count = pad_count(payload.len());
        let start = repr.emit_headers(buf)?;
        let end = start + payload.len();
        buf[start..end].copy_from_slice(payload);
        buf[end..need - ICRC_LEN].fill(0);
        Ok(need - ICRC_LEN)
    }
}

#[cfg(test)]
mod tests;
