//! A packet as one JSON object. Keys are only ever added.
//!
//! 64-bit values are text, mostly hexadecimal, because many readers of JSON keep only 53 bits. A
//! key whose value the packet does not have is absent.

use serde_json::{Value, json};
use urxe_stack::link::interface::mac_text;
use urxe_wire::PacketView;
use urxe_wire::display::Value as FieldValue;
use urxe_wire::frame::{FrameRepr, IpRepr};
use urxe_wire::mad::{Mad, MadError, MadValue};

use super::dissect::{Content, Icrc, Packet, mad, received_icrc};
use crate::output::Object;

/// Returns the packet as an object.
pub fn object(packet: &Packet<'_>) -> Value {
    let mut object = Object::default();
    object.add("number", packet.number);
    // Seconds since 1970, with nanoseconds.
    let time = packet.time_ns.map(|ns| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000));
    object.add("time", time);
    object.add("captured_len", packet.captured_len);
    object.add("original_len", packet.original_len);
    object.add("comment", packet.comment.clone());
    match &packet.content {
        Content::Roce { frame, view, payload_captured, icrc } => {
            object.add("kind", "roce");
            add_frame(&mut object, frame);
            object.add("bth", bth_object(view));
            add_headers(&mut object, view);
            object.add("mad", mad(view, *payload_captured).map(mad_object));
            object.add("payload_len", view.info().has_payload().then(|| view.payload_len()));
            object.add("icrc", icrc_object(received_icrc(view.bytes()), *icrc));
        }
        Content::Malformed { frame, reason, icrc } => {
            object.add("kind", "malformed");
            object.add("reason", reason.to_string());
            // The name among the drop reasons.
            object.add("reason_name", reason.name());
            add_frame(&mut object, frame);
            object.add("icrc", icrc_object(None, *icrc));
        }
        Content::OtherUdp { frame, .. } => {
            object.add("kind", "other");
            object.add("reason", "UDP to another port");
            add_frame(&mut object, frame);
        }
        Content::Other(what) => {
            object.add("kind", "other");
            object.add("reason", what.to_string());
        }
        Content::Damaged(what) => {
            object.add("kind", "damaged");
            object.add("reason", what.to_string());
        }
        Content::Cut => object.add("kind", "cut"),
    }
    object.into()
}

fn add_frame(object: &mut Object, frame: &FrameRepr) {
    let (traffic_class, hop_limit, identification) = match frame.ip {
        IpRepr::V4 { tos, identification, ttl, .. } => (tos, ttl, Some(identification)),
        IpRepr::V6 { traffic_class, hop_limit, .. } => (traffic_class, hop_limit, None),
    };
    object.add("src", frame.src.ip().to_string());
    object.add("dst", frame.dst.ip().to_string());
    object.add("src_port", frame.src.port());
    object.add("dst_port", frame.dst.port());
    object.add("src_mac", frame.link.as_ref().map(|link| mac_text(link.src)));
    object.add("dst_mac", frame.link.as_ref().map(|link| mac_text(link.dst)));
    object.add("traffic_class", traffic_class);
    object.add("hop_limit", hop_limit);
    object.add("identification", identification);
}

fn bth_object(view: &PacketView<'_>) -> Value {
    let bth = view.bth();
    json!({
        "opcode": bth.opcode.byte(),
        "name": bth.opcode.to_string(),
        "solicited": bth.solicited,
        "mig_req": bth.mig_req,
        "pad_count": bth.pad_count,
        "pkey": bth.pkey.value(),
        "fecn": bth.fecn,
        "becn": bth.becn,
        "dest_qp": bth.dest_qp.value(),
        "ack_req": bth.ack_req,
        "psn": bth.psn.value(),
    })
}

fn add_headers(object: &mut Object, view: &PacketView<'_>) {
    let hex = |value: u64| format!("0x{value:016x}");
    object.add("xrceth", view.xrceth().map(|header| json!({ "srq": header.srq.value() })));
    let deth = |header: urxe_wire::Deth| {
        json!({
            "qkey": header.qkey.value(),
            "src_qp": header.src_qp.value(),
        })
    };
    object.add("deth", view.deth().map(deth));
    object.add("feth", view.feth().map(|header| header.to_string()));
    let reth = |header: urxe_wire::Reth| {
        json!({
            "va": hex(header.va),
            "rkey": header.rkey.value(),
            "dma_len": header.dma_len,
        })
    };
    object.add("reth", view.reth().map(reth));
    let atomic_eth = |header: urxe_wire::AtomicEth| {
        json!({
            "va": hex(header.va),
            "rkey": header.rkey.value(),
            "swap_or_add": hex(header.swap_or_add),
            "compare": hex(header.compare),
        })
    };
    object.add("atomic_eth", view.atomic_eth().map(atomic_eth));
    let aeth = |header: urxe_wire::Aeth| {
        json!({
            "syndrome": header.syndrome.byte(),
            "meaning": header.syndrome.to_string(),
            "msn": header.msn.value(),
        })
    };
    object.add("aeth", view.aeth().map(aeth));
    let atomic_ack_eth = view.atomic_ack_eth();
    object.add(
        "atomic_ack_eth",
        atomic_ack_eth.map(|header| json!({ "original": hex(header.original) })),
    );
    object.add("imm_data", view.imm().map(|header| header.data));
    object.add("invalidate_rkey", view.ieth().map(|header| header.rkey.value()));
}

/// Returns the message of a datagram to queue pair 1.
fn mad_object(mad: Result<Mad, MadError>) -> Value {
    let mut object = Object::default();
    match mad {
        Ok(Mad { tid, attribute_modifier, message }) => {
            object.add("attribute", message.attribute().name());
            object.add("tid", tid.to_string());
            object.add("attribute_modifier", attribute_modifier);
            let mut fields: Vec<_> = message.fields().into_iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields.into_iter().map(|(name, value)| (name, field_value(value)));
            object.add("fields", fields.collect::<Value>());
            let cma = message.cma_header().map(|header| {
                json!({
                    "src": header.src().ip(),
                    "src_port": header.src_port,
                    "dst": header.dst(),
                })
            });
            object.add("cma", cma);
        }
        Err(reason) => {
            object.add("reason", reason.to_string());
            object.add("reason_name", reason.name());
        }
    }
    object.into()
}

/// Returns a field's value. Numeric fields of messages have at most 32 bits. Private data is shown
/// in hexadecimal.
fn field_value(value: MadValue<'_>) -> Value {
    match value {
        MadValue::Plain(FieldValue::Decimal(number) | FieldValue::Hex(number, _)) => number.into(),
        MadValue::Plain(FieldValue::Flag(flag)) => flag.into(),
        MadValue::Plain(FieldValue::Word(word)) => word.into(),
        MadValue::Text(text) => text.into(),
        MadValue::Bytes(bytes) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
    }
}

/// Returns the ICRC; `ok` is `null` where the capture cut the packet before its ICRC.
fn icrc_object(received: Option<u32>, icrc: Icrc) -> Value {
    let (ok, received, computed) = match icrc {
        Icrc::Ok => (Some(true), received, None),
        Icrc::Wrong { computed } => (Some(false), received, computed),
        Icrc::NotCaptured => (None, None, None),
    };
    let mut object = Object::new("ok", ok);
    object.add("received", received);
    object.add("computed", computed);
    object.into()
}
