//! Every header field of a packet, below its line.

use std::io::{self, Write};

use urxe_stack::link::interface::mac_text;
use urxe_wire::frame::{FrameRepr, IpRepr};
use urxe_wire::mad::Mad;
use urxe_wire::{PacketView, Qpn};

use super::dissect::{Content, Icrc, Packet, mad, received_icrc};
use super::line::headers;

/// The largest number of payload bytes shown.
const PAYLOAD_SHOWN: usize = 64;
const PAYLOAD_PER_LINE: usize = 16;

/// Writes the header fields of a UDP packet; writes nothing for other packets.
pub fn print(out: &mut dyn Write, packet: &Packet<'_>) -> io::Result<()> {
    match &packet.content {
        Content::Roce { frame, view, payload_captured, icrc } => {
            print_frame(out, frame)?;
            print_packet(out, view)?;
            if let Some(Ok(mad)) = mad(view, *payload_captured) {
                print_mad(out, &mad)?;
            }
            print_payload(out, view, *payload_captured)?;
            print_icrc(out, received_icrc(view.bytes()), *icrc)
        }
        Content::Malformed { frame, .. } | Content::OtherUdp { frame, .. } => {
            print_frame(out, frame)
        }
        Content::Other(_) | Content::Damaged(_) | Content::Cut => Ok(()),
    }
}

fn print_frame(out: &mut dyn Write, frame: &FrameRepr) -> io::Result<()> {
    if let Some(link) = &frame.link {
        write!(out, "      Ethernet      {} > {}", mac_text(link.src), mac_text(link.dst))?;
        for (_, tci) in &link.vlan {
            write!(out, " vlan {} priority {}", tci & 0x0fff, tci >> 13)?;
        }
        writeln!(out)?;
    }
    let (src, dst) = (frame.src.ip(), frame.dst.ip());
    match frame.ip {
        IpRepr::V4 { tos, identification, dont_fragment, ttl } => {
            let df = if dont_fragment { " DF" } else { "" };
            write!(out, "      IPv4          {src} > {dst} tos 0x{tos:02x} ")?;
            writeln!(out, "identification {identification}{df} ttl {ttl}")?;
        }
        IpRepr::V6 { traffic_class, flow_label, hop_limit } => {
            write!(out, "      IPv6          {src} > {dst} traffic class 0x{traffic_class:02x} ")?;
            writeln!(out, "flow label 0x{flow_label:05x} hop limit {hop_limit}")?;
        }
    }
    let checksum = if frame.udp_checksum { "present" } else { "left out" };
    writeln!(
        out,
        "      UDP           {} > {} checksum {checksum}",
        frame.src.port(),
        frame.dst.port()
    )
}

fn print_packet(out: &mut dyn Write, view: &PacketView<'_>) -> io::Result<()> {
    let bth = view.bth();
    let qp1 = if bth.dest_qp == Qpn::QP1 { " (communication management)" } else { "" };
    write!(out, "      BTH           opcode 0x{:02x} {} ", bth.opcode.byte(), bth.opcode)?;
    write!(
        out,
        "se {} m {} pad {} ",
        u8::from(bth.solicited),
        u8::from(bth.mig_req),
        bth.pad_count
    )?;
    write!(out, "tver {} pkey {} ", bth.version, bth.pkey)?;
    write!(out, "fecn {} becn {} ", u8::from(bth.fecn), u8::from(bth.becn))?;
    writeln!(out, "qp {}{qp1} a {} psn {}", bth.dest_qp, u8::from(bth.ack_req), bth.psn)?;
    for (name, text) in headers(view) {
        writeln!(out, "      {name:<13} {text}")?;
    }
    Ok(())
}

/// Returns the header's fields on one line, each field of the message on its own.
fn print_mad(out: &mut dyn Write, mad: &Mad) -> io::Result<()> {
    let Mad { tid, attribute_modifier, message } = mad;
    let attribute = message.attribute();
    write!(out, "      MAD           CM {attribute} (0x{:04x}) tid {tid} ", attribute.id())?;
    writeln!(out, "attribute modifier 0x{attribute_modifier:08x}")?;
    for (name, value) in message.fields() {
        writeln!(out, "        {name:<26} {value}")?;
    }
    if let Some(header) = message.cma_header() {
        writeln!(out, "      CMA           {header}")?;
    }
    Ok(())
}

fn print_payload(
    out: &mut dyn Write,
    view: &PacketView<'_>,
    captured_len: usize,
) -> io::Result<()> {
    if !view.info().has_payload() {
        return Ok(());
    }
    writeln!(out, "      payload       {} bytes, {} of pad", view.payload_len(), view.pad_count())?;
    let captured = &view.payload()[..captured_len];
    let shown = &captured[..captured.len().min(PAYLOAD_SHOWN)];
    for (line, bytes) in shown.chunks(PAYLOAD_PER_LINE).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            bytes.iter().map(|&b| if b.is_ascii_graphic() { b.into() } else { '.' }).collect();
        writeln!(
            out,
            "                    {:04x}  {:<47}  {text}",
            line * PAYLOAD_PER_LINE,
            hex.join(" ")
        )?;
    }
    if captured.len() > PAYLOAD_SHOWN {
        writeln!(out, "                    … {} bytes more", captured.len() - PAYLOAD_SHOWN)?;
    }
    Ok(())
}

fn print_icrc(out: &mut dyn Write, received: Option<u32>, icrc: Icrc) -> io::Result<()> {
    let received = received.unwrap_or(0);
    match icrc {
        Icrc::Ok => writeln!(out, "      ICRC          0x{received:08x} ok"),
        Icrc::Wrong { computed: Some(computed) } => {
            writeln!(out, "      ICRC          0x{received:08x} WRONG, should be 0x{computed:08x}")
        }
        Icrc::Wrong { computed: None } => {
            writeln!(out, "      ICRC          0x{received:08x} WRONG")
        }
        Icrc::NotCaptured => writeln!(out, "      ICRC          not captured"),
    }
}
