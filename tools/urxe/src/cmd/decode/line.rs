//! A packet on one line.

use std::io::{self, Write};

use urxe_wire::PacketView;
use urxe_wire::frame::FrameRepr;

use super::dissect::{Content, Icrc, Packet, mad};

/// Writes the packet's line; times count from `start_ns`.
pub fn print(out: &mut dyn Write, packet: &Packet<'_>, start_ns: u128) -> io::Result<()> {
    write!(out, "{:>5} {:>11}  ", packet.number, seconds(packet.time_ns, start_ns))?;
    match &packet.content {
        Content::Roce { frame, view, payload_captured, icrc } => {
            addresses(out, frame)?;
            roce(out, view, *payload_captured, *icrc)?;
        }
        Content::Malformed { frame, reason, icrc } => {
            addresses(out, frame)?;
            write!(out, "MALFORMED ({}): {reason}; {}", reason.name(), icrc.text())?;
        }
        Content::OtherUdp { frame, len } => {
            addresses(out, frame)?;
            write!(
                out,
                "not RoCEv2: UDP {} > {}, {len} bytes",
                frame.src.port(),
                frame.dst.port()
            )?;
        }
        Content::Other(what) => write!(out, "not RoCEv2: {what}")?,
        Content::Damaged(what) => write!(out, "damaged frame: {what}")?,
        Content::Cut => {
            let Packet { captured_len, original_len, .. } = packet;
            write!(
                out,
                "cut by the capture: {captured_len} of {original_len} bytes, less than its headers"
            )?;
        }
    }
    if let Some(comment) = &packet.comment {
        write!(out, "  # {comment}")?;
    }
    writeln!(out)
}

fn addresses(out: &mut dyn Write, frame: &FrameRepr) -> io::Result<()> {
    write!(out, "{} > {}  ", frame.src.ip(), frame.dst.ip())
}

/// Writes the BTH, the further headers in wire order, the payload and the ICRC.
fn roce(
    out: &mut dyn Write,
    view: &PacketView<'_>,
    payload_captured: usize,
    icrc: Icrc,
) -> io::Result<()> {
    write!(out, "{}", view.bth())?;
    for (_, header) in headers(view) {
        write!(out, ", {header}")?;
    }
    match mad(view, payload_captured) {
        Some(Ok(mad)) => write!(out, ", {}", mad.message)?,
        Some(Err(reason)) => write!(out, ", no CM MAD ({}): {reason}", reason.name())?,
        None if view.info().has_payload() => write!(out, ", {} bytes", view.payload_len())?,
        None => {}
    }
    write!(out, ", {}", icrc.text())
}

/// Returns the extension headers of a packet in wire order: the specification's name, and the
/// fields as text.
pub fn headers(view: &PacketView<'_>) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut add = |name, text: Option<String>| all.extend(text.map(|text| (name, text)));
    add("XRCETH", view.xrceth().map(|header| header.to_string()));
    add("DETH", view.deth().map(|header| header.to_string()));
    add("FETH", view.feth().map(|header| header.to_string()));
    add("RETH", view.reth().map(|header| header.to_string()));
    add("AtomicETH", view.atomic_eth().map(|header| header.to_string()));
    add("AETH", view.aeth().map(|header| header.to_string()));
    add("AtomicAckETH", view.atomic_ack_eth().map(|header| header.to_string()));
    add("ImmDt", view.imm().map(|header| header.to_string()));
    add("IETH", view.ieth().map(|header| header.to_string()));
    all
}

/// Returns the seconds since `start_ns` with microseconds. The value may be negative, because
/// clocks may be set back.
fn seconds(time_ns: Option<u128>, start_ns: u128) -> String {
    let Some(time_ns) = time_ns else { return "-".to_owned() };
    let sign = if time_ns < start_ns { "-" } else { "" };
    let us = time_ns.abs_diff(start_ns) / 1000;
    format!("{sign}{}.{:06}", us / 1_000_000, us % 1_000_000)
}
