//! Whole packets, from BTH to ICRC: what a UDP datagram to port 4791 carries.
//!
//! Two shapes, for two uses:
//! - [`PacketView`] borrows received bytes. [`PacketView::parse`] checks everything that can be
//!   checked without knowing the queue pair (lengths, version, opcode, pad), once; after that each
//!   accessor reads its field in place, at an offset that the opcode table gives. A header that is
//!   not read costs nothing.
//! - [`PacketRepr`] owns the headers as plain values, to be emitted. If it can be constructed with
//!   the extension of its opcode, it can be emitted, and what was emitted parses to the same
//!   values.
//!
//! The payload never passes through here: a sender writes the headers
//! ([`PacketRepr::emit_headers`]), copies its payload behind them, has the pad zeroed
//! ([`emit_pad`]) and puts the ICRC at the end ([`crate::IcrcSeed::append`]).
//!
//! ```text
//! | BTH 12 | extension headers 0..=36 | payload 0..=4096 | pad 0..=3 | ICRC 4 |
//! |<------ info.headers_len() ------->|                              |
//! |<------------------ covered by the ICRC ------------------------->|
//! ```
//!
//! That FIRST and MIDDLE packets fill the path MTU, and that a RETH agrees with the payload, is the
//! queue pair's to check.

use crate::bytes::{at, be16};
use crate::error::{EmitError, ParseError};
use crate::opcode::{HeaderSet, OpcodeInfo, PayloadRule};
use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Opcode, PKey, Psn, Qpn, Reth,
    XrcEth,
};

/// Bytes of the ICRC at the end of every packet.
pub const ICRC_LEN: usize = 4;
/// The greatest path MTU, and so the most payload a packet carries.
pub const MAX_PAYLOAD: usize = 4096;
/// The most bytes that BTH and extension headers take: XRC COMPARE SWAP.
pub const MAX_HEADERS_LEN: usize = Bth::LEN + XrcEth::LEN + AtomicEth::LEN;
/// The longest packet that parses.
pub const MAX_PACKET_LEN: usize = MAX_HEADERS_LEN + MAX_PAYLOAD + ICRC_LEN;

/// The pad count that goes with a payload: 0 ..= 3.
#[must_use]
pub const fn pad_count(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Bytes of a packet with these headers and this payload, with pad and ICRC.
#[must_use]
pub const fn packet_len(headers_len: usize, payload_len: usize) -> usize {
    headers_len + payload_len + pad_count(payload_len) as usize + ICRC_LEN
}

/// Zeroes the pad behind headers and payload that end at `end`; returns where the ICRC goes. `None`
/// when `buf` is too short.
#[must_use]
pub fn emit_pad(buf: &mut [u8], end: usize) -> Option<usize> {
    // Headers are multiples of four, so the pad can be told from the end of the payload.
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

/// A received packet whose shape has been checked.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    bytes: &'a [u8],
    info: &'static OpcodeInfo,
    /// End of the payload, before the pad.
    payload_end: usize,
}

impl<'a> PacketView<'a> {
    /// Checks the bytes of a UDP datagram, ICRC included. The ICRC is not verified here.
    ///
    /// # Errors
    /// Every variant of [`ParseError`] but `ShortHeader` and `BadGrhVersion`. The checks run in the
    /// order of a BTH's fields, lengths first, so that a packet with several faults always gets the
    /// same reason.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let have = bytes.len();
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
        if !have.is_multiple_of(4) {
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
                return Err(ParseError::PayloadLength {
                    opcode,
                    need: n as usize,
                    have: payload_len,
                });
            }
        }
        Ok(Self { bytes, info, payload_end: info.headers_len() + payload_len })
    }

    /// Bytes of the packet, BTH to ICRC.
    #[must_use]
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.bytes.len()
    }

    /// The row of the opcode table.
    #[must_use]
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// The opcode.
    #[must_use]
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.info.opcode
    }

    /// The BTH as a value.
    #[must_use]
    pub fn bth(&self) -> Bth {
        Bth::read(self.opcode(), &at(self.bytes, 0))
    }

    /// SE: solicited event.
    #[must_use]
    #[inline]
    pub fn solicited(&self) -> bool {
        self.bytes[1] & 0x80 != 0
    }

    /// M: path migration state.
    #[must_use]
    #[inline]
    pub fn mig_req(&self) -> bool {
        self.bytes[1] & 0x40 != 0
    }

    /// Bytes of pad, 0 ..= 3.
    #[must_use]
    #[inline]
    pub fn pad_count(&self) -> u8 {
        (self.bytes[1] >> 4) & 3
    }

    /// Partition key.
    #[must_use]
    #[inline]
    pub fn pkey(&self) -> PKey {
        PKey(be16(self.bytes, 2))
    }

    /// Forward congestion notification.
    #[must_use]
    #[inline]
    pub fn fecn(&self) -> bool {
        self.bytes[4] & 0x80 != 0
    }

    /// Backward congestion notification.
    #[must_use]
    #[inline]
    pub fn becn(&self) -> bool {
        self.bytes[4] & 0x40 != 0
    }

    /// Destination queue pair.
    #[must_use]
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        Qpn::from_be_bytes(at(self.bytes, 5))
    }

    /// A: an acknowledgement is asked for.
    #[must_use]
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.bytes[8] & 0x80 != 0
    }

    /// Packet sequence number.
    #[must_use]
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::from_be_bytes(at(self.bytes, 9))
    }

    /// The bytes from a header on, if the opcode has that header.
    #[inline]
    fn header(&self, header: HeaderSet) -> Option<&'a [u8]> {
        self.bytes.get(self.info.offset(header)?..)
    }

    headers! {
        /// XRC: which shared receive queue.
        xrceth: XrcEth, XRCETH;
        /// Datagram: Q_Key and sender.
        deth: Deth, DETH;
        /// FLUSH: how far.
        feth: Feth, FETH;
        /// WRITE, READ, ATOMIC WRITE, FLUSH: which memory.
        reth: Reth, RETH;
        /// Atomics: which memory and the operands.
        atomic_eth: AtomicEth, ATOMIC_ETH;
        /// Responses: syndrome and MSN.
        aeth: Aeth, AETH;
        /// Atomic responses: the original value.
        atomic_ack_eth: AtomicAckEth, ATOMIC_ACK_ETH;
        /// Immediate data.
        imm: ImmDt, IMM;
        /// SEND with invalidate: which key.
        ieth: Ieth, IETH;
    }

    /// The payload, without the pad.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.info.headers_len()..self.payload_end]
    }

    /// Bytes of payload, without the pad.
    #[must_use]
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.payload_end - self.info.headers_len()
    }

    /// The ICRC as it came; it stands little-endian on the wire.
    #[must_use]
    #[inline]
    pub fn icrc(&self) -> u32 {
        u32::from_le_bytes(at(self.bytes, self.bytes.len() - ICRC_LEN))
    }

    /// All bytes, ICRC included.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes that the ICRC covers.
    #[must_use]
    #[inline]
    pub fn without_icrc(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - ICRC_LEN]
    }

    /// The headers as values.
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

/// The extension headers between BTH and payload, but for the XRCETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ext {
    /// None.
    None,
    /// SEND or WRITE LAST with immediate.
    Imm(ImmDt),
    /// SEND with invalidate.
    Ieth(Ieth),
    /// WRITE FIRST or ONLY, READ request, ATOMIC WRITE.
    Reth(Reth),
    /// WRITE ONLY with immediate.
    RethImm(Reth, ImmDt),
    /// FLUSH.
    Flush(Feth, Reth),
    /// Acknowledgement, READ response but MIDDLE.
    Aeth(Aeth),
    /// Atomic response.
    AtomicAck(Aeth, AtomicAckEth),
    /// Compare and swap, fetch and add.
    Atomic(AtomicEth),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate.
    DethImm(Deth, ImmDt),
}

impl Ext {
    /// Which headers these are.
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

/// The headers of a packet, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRepr {
    /// Base transport header. Its pad count is the sender's to set, with [`pad_count`].
    pub bth: Bth,
    /// XRC requests: the shared receive queue.
    pub xrceth: Option<XrcEth>,
    /// The other extension headers.
    pub ext: Ext,
}

/// Takes the next header's bytes off the front of `buf`.
macro_rules! emit {
    ($buf:ident, $($header:expr),+) => {{
        $(
            // The total was compared with the table and the buffer cut to it, so that every header
            // fits.
            if let Some((front, rest)) = std::mem::take(&mut $buf).split_first_chunk_mut() {
                $header.emit(front);
                $buf = rest;
            }
        )+
    }};
}

impl PacketRepr {
    /// A packet that is not of XRC.
    #[must_use]
    pub const fn new(bth: Bth, ext: Ext) -> Self {
        Self { bth, xrceth: None, ext }
    }

    /// Bytes of BTH and extension headers.
    #[must_use]
    pub fn headers_len(&self) -> usize {
        self.bth.opcode.info().headers_len()
    }

    /// Writes BTH and extension headers to the front of `buf`; returns their length, where the
    /// payload begins.
    ///
    /// # Errors
    /// [`EmitError::HeadersMismatch`], [`EmitError::BufferTooSmall`]; nothing is written then.
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

    /// Writes headers, payload and pad to the front of `buf`, with the pad count the payload needs;
    /// returns their length, where the ICRC goes. There must be room for the ICRC as well.
    ///
    /// # Errors
    /// Every variant of [`EmitError`].
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
