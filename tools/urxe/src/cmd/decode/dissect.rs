//! One record, dissected for the line, verbose and JSON renderings.

use std::borrow::Cow;

use urxe_stack::escape::Escaped;
use urxe_wire::frame::{Frame, FrameRepr};
use urxe_wire::mad::{Mad, MadError};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{PacketView, ParseError, Qpn, ROCE_PORT};

use crate::capture::Record;
use crate::capture::link_layer::{self, NotUdp};

#[cfg(test)]
mod tests;

/// The largest length to which a truncated record is padded. A longer length is damaged, because no
/// IP packet is so long.
const MAX_FRAME_LEN: usize = 1 << 17;

/// Bytes of the longest link header and the shortest IP header. With fewer bytes, the zeros that
/// replace the truncated part might be taken for a protocol.
const MIN_HEADERS_LEN: usize = 40;

/// One packet of a capture.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Its number in the file, from 1.
    pub number: u64,
    /// Nanoseconds since 1970, if the file has a time stamp.
    pub time_ns: Option<u128>,
    /// Bytes captured.
    pub captured_len: usize,
    /// Bytes on the wire.
    pub original_len: u32,
    /// The comment in the file, with escapes.
    pub comment: Option<String>,
    /// The content.
    pub content: Content<'a>,
}

/// The content of a packet.
#[derive(Debug)]
pub enum Content<'a> {
    /// A RoCEv2 packet.
    Roce {
        /// The headers before the packet.
        frame: FrameRepr,
        /// The packet.
        view: PacketView<'a>,
        /// Payload bytes that were captured.
        payload_captured: usize,
        /// The result of the ICRC check.
        icrc: Icrc,
    },
    /// UDP to the RoCEv2 port without a valid RoCEv2 packet.
    Malformed {
        /// The headers before the datagram.
        frame: FrameRepr,
        /// The reason why the datagram is not a RoCEv2 packet.
        reason: ParseError,
        /// Whether the last four bytes are a correct ICRC. Then the sender built the packet this
        /// way.
        icrc: Icrc,
    },
    /// UDP to another port.
    OtherUdp {
        /// Addresses and ports.
        frame: FrameRepr,
        /// Bytes after the UDP header.
        len: usize,
    },
    /// Another protocol.
    Other(NotUdp),
    /// A damaged frame.
    Damaged(NotUdp),
    /// The capture truncated the packet within its headers.
    Cut,
}

/// The result of an ICRC check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// The ICRC is correct.
    Ok,
    /// The ICRC is wrong.
    Wrong {
        /// The correct value, if the packet is long enough for an ICRC.
        computed: Option<u32>,
    },
    /// The capture truncated the packet.
    NotCaptured,
}

impl Icrc {
    /// Returns the result as text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ok => "ICRC ok",
            Self::Wrong { .. } => "ICRC WRONG",
            Self::NotCaptured => "ICRC not captured",
        }
    }
}

/// Returns the record's bytes; if the capture cut them, with zeros up to the length on the wire, so
/// that lengths agree.
pub fn as_on_the_wire<'a>(record: &Record<'a>) -> Cow<'a, [u8]> {
    let original_len = usize::try_from(record.original_len).unwrap_or(usize::MAX);
    if record.bytes.len() >= original_len || original_len > MAX_FRAME_LEN {
        return Cow::Borrowed(record.bytes);
    }
    let mut bytes = record.bytes.to_vec();
    bytes.resize(original_len, 0);
    Cow::Owned(bytes)
}

impl<'a> Packet<'a> {
    /// Dissects a record, whose bytes as on the wire are `bytes`.
    pub fn new(number: u64, record: &Record<'_>, bytes: &'a [u8]) -> Self {
        let captured_len = record.bytes.len();
        let content = content(record.link_type, bytes, captured_len);
        let comment = record.comment.as_ref().map(|text| Escaped(text).to_string());
        Self {
            number,
            time_ns: record.time_ns,
            captured_len,
            original_len: record.original_len,
            comment,
            content,
        }
    }
}

/// Classifies `bytes`, of which the capture kept the first `captured_len`.
fn content(link_type: u32, bytes: &[u8], captured_len: usize) -> Content<'_> {
    let is_cut = captured_len < bytes.len();
    let frame = match link_layer::parse(link_type, bytes) {
        Ok(frame) => frame,
        Err(_) if is_cut && captured_len < MIN_HEADERS_LEN => return Content::Cut,
        Err(other) if other.is_other_protocol() => return Content::Other(other),
        Err(_) if is_cut => return Content::Cut,
        Err(damaged) => return Content::Damaged(damaged),
    };
    let packet_at = frame.udp_payload.as_ptr().addr() - bytes.as_ptr().addr();
    let Some(captured) = captured_len.checked_sub(packet_at) else {
        return Content::Cut;
    };
    if frame.repr.dst.port() != ROCE_PORT {
        return Content::OtherUdp { len: frame.udp_payload.len(), frame: frame.repr };
    }
    let icrc = icrc_of(&frame, captured);
    match PacketView::parse(frame.udp_payload) {
        Ok(view) => match captured.checked_sub(view.info().headers_len()) {
            Some(behind_headers) => {
                let payload_captured = behind_headers.min(view.payload_len());
                Content::Roce { frame: frame.repr, view, payload_captured, icrc }
            }
            None => Content::Cut,
        },
        Err(_) if captured < frame.udp_payload.len() => Content::Cut,
        Err(reason) => Content::Malformed { frame: frame.repr, reason, icrc },
    }
}

fn icrc_of(frame: &Frame<'_>, captured: usize) -> Icrc {
    if captured < frame.udp_payload.len() {
        Icrc::NotCaptured
    } else if frame.icrc_holds() {
        Icrc::Ok
    } else {
        Icrc::Wrong { computed: frame.icrc() }
    }
}

/// Returns the MAD in a datagram to queue pair 1, or the reason why it is not a communication
/// management MAD. Returns `None` for other packets and for truncated ones.
pub fn mad(view: &PacketView<'_>, payload_captured: usize) -> Option<Result<Mad, MadError>> {
    let is_whole = payload_captured == view.payload_len();
    let to_gsi = view.deth().is_some() && view.bth().dest_qp == Qpn::QP1;
    (to_gsi && is_whole).then(|| Mad::parse(view.payload()))
}

/// Returns the ICRC at the end of a packet, as a number.
pub fn received_icrc(packet: &[u8]) -> Option<u32> {
    packet.last_chunk::<ICRC_LEN>().copied().map(u32::from_le_bytes)
}
