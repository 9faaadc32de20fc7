//! A packet as one JSON object. Keys are only ever added.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use urxe_stack::link::interface::mac_text;
use urxe_wire::PacketView;
use urxe_wire::display::Value;
use urxe_wire::frame::{FrameRepr, IpRepr};
use urxe_wire::mad::{Mad, MadError, MadValue};

use super::dissect::{Content, Icrc, Packet, mad, received_icrc};

/// The object.
#[derive(Debug, Serialize)]
pub struct Object {
    number: u64,
    /// Seconds since 1970, with nanoseconds; text, since readers of JSON round numbers that long.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    captured_len: usize,
    original_len: u32,
    /// A remark of whoever captured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    /// `roce`, `malformed`, `other`, `damaged` or `cut`.
    kind: &'static str,
    /// Why it is malformed or damaged, or what else it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The reason's name among the drop reasons, if it is malformed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_name: Option<&'static str>,
    #[serde(flatten)]
    frame: Option<FrameObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bth: Option<BthObject>,
    #[serde(flatten)]
    headers: Headers,
    /// What a datagram to queue pair 1 says.
    #[serde(skip_serializing_if = "Option::is_none")]
    mad: Option<MadObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_len: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icrc: Option<IcrcObject>,
}

#[derive(Debug, Serialize)]
struct FrameObject {
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    dst_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_mac: Option<String>,
    traffic_class: u8,
    hop_limit: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    identification: Option<u16>,
}

#[derive(Debug, Serialize)]
struct BthObject {
    opcode: u8,
    name: String,
    solicited: bool,
    mig_req: bool,
    pad_count: u8,
    pkey: u16,
    fecn: bool,
    becn: bool,
    dest_qp: u32,
    ack_req: bool,
    psn: u32,
}

#[derive(Debug, Default, Serialize)]
struct Headers {
    #[serde(skip_serializing_if = "Option::is_none")]
    xrceth: Option<XrcEthObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deth: Option<DethObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    feth: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reth: Option<RethObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_eth: Option<AtomicEthObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aeth: Option<AethObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_ack_eth: Option<AtomicAckEthObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    imm_data: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invalidate_rkey: Option<u32>,
}

#[derive(Debug, Serialize)]
struct XrcEthObject {
    srq: u32,
}

#[derive(Debug, Serialize)]
struct DethObject {
    qkey: u32,
    src_qp: u32,
}

/// 64-bit values are hexadecimal text: many readers of JSON keep 53 bits.
#[derive(Debug, Serialize)]
struct RethObject {
    va: String,
    rkey: u32,
    dma_len: u32,
}

#[derive(Debug, Serialize)]
struct AtomicEthObject {
    va: String,
    rkey: u32,
    swap_or_add: String,
    compare: String,
}

#[derive(Debug, Serialize)]
struct AethObject {
    syndrome: u8,
    meaning: String,
    msn: u32,
}

#[derive(Debug, Serialize)]
struct AtomicAckEthObject {
    original: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum MadObject {
    Cm {
        attribute: &'static str,
        tid: String,
        attribute_modifier: u32,
        /// Every field under its name; private data as hexadecimal digits.
        fields: BTreeMap<&'static str, serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cma: Option<CmaObject>,
    },
    Refused {
        reason: String,
        reason_name: &'static str,
    },
}

#[derive(Debug, Serialize)]
struct CmaObject {
    src: IpAddr,
    src_port: u16,
    dst: IpAddr,
}

#[derive(Debug, Serialize)]
struct IcrcObject {
    /// `null` if the capture cut it off.
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    computed: Option<u32>,
}

/// The packet as an object.
pub fn object(packet: &Packet<'_>) -> Object {
    let mut object = Object {
        number: packet.number,
        time: packet.time_ns.map(|ns| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)),
        captured_len: packet.captured_len,
        original_len: packet.original_len,
        comment: packet.comment.clone(),
        kind: "cut",
        reason: None,
        reason_name: None,
        frame: None,
        bth: None,
        headers: Headers::default(),
        mad: None,
        payload_len: None,
        icrc: None,
    };
    match &packet.content {
        Content::Roce { frame, view, payload_captured, icrc } => {
            object.kind = "roce";
            object.frame = Some(frame_object(frame));
            object.bth = Some(bth_object(view));
            object.headers = headers_object(view);
            object.mad = mad(view, *payload_captured).map(mad_object);
            object.payload_len = view.info().has_payload().then(|| view.payload_len());
            object.icrc = Some(icrc_object(received_icrc(view.bytes()), *icrc));
        }
        Content::Malformed { frame, reason, icrc } => {
            object.kind = "malformed";
            object.reason = Some(reason.to_string());
            object.reason_name = Some(reason.name());
            object.frame = Some(frame_object(frame));
            object.icrc = Some(icrc_object(None, *icrc));
        }
        Content::OtherUdp { frame, .. } => {
            object.kind = "other";
            object.reason = Some("UDP to another port".to_owned());
            object.frame = Some(frame_object(frame));
        }
        Content::Other(what) => {
            object.kind = "other";
            object.reason = Some(what.to_string());
        }
        Content::Damaged(what) => {
            object.kind = "damaged";
            object.reason = Some(what.to_string());
        }
        Content::Cut => {}
    }
    object
}

fn frame_object(frame: &FrameRepr) -> FrameObject {
    let (traffic_class, hop_limit, identification) = match frame.ip {
        IpRepr::V4 { tos, identification, ttl, .. } => (tos, ttl, Some(identification)),
        IpRepr::V6 { traffic_class, hop_limit, .. } => (traffic_class, hop_limit, None),
    };
    FrameObject {
        src: frame.src.ip(),
        dst: frame.dst.ip(),
        src_port: frame.src.port(),
        dst_port: frame.dst.port(),
        src_mac: frame.link.as_ref().map(|link| mac_text(link.src)),
        dst_mac: frame.link.as_ref().map(|link| mac_text(link.dst)),
        traffic_class,
        hop_limit,
        identification,
    }
}

fn bth_object(view: &PacketView<'_>) -> BthObject {
    let bth = view.bth();
    BthObject {
        opcode: bth.opcode.byte(),
        name: bth.opcode.to_string(),
        solicited: bth.solicited,
        mig_req: bth.mig_req,
        pad_count: bth.pad_count,
        pkey: bth.pkey.value(),
        fecn: bth.fecn,
        becn: bth.becn,
        dest_qp: bth.dest_qp.value(),
        ack_req: bth.ack_req,
        psn: bth.psn.value(),
    }
}

fn headers_object(view: &PacketView<'_>) -> Headers {
    let hex = |value: u64| format!("0x{value:016x}");
    Headers {
        xrceth: view.xrceth().map(|header| XrcEthObject { srq: header.srq.value() }),
        deth: view
            .deth()
            .map(|header| DethObject { qkey: header.qkey.value(), src_qp: header.src_qp.value() }),
        feth: view.feth().map(|header| header.to_string()),
        reth: view.reth().map(|header| RethObject {
            va: hex(header.va),
            rkey: header.rkey.value(),
            dma_len: header.dma_len,
        }),
        atomic_eth: view.atomic_eth().map(|header| AtomicEthObject {
            va: hex(header.va),
            rkey: header.rkey.value(),
            swap_or_add: hex(header.swap_or_add),
            compare: hex(header.compare),
        }),
        aeth: view.aeth().map(|header| AethObject {
            syndrome: header.syndrome.byte(),
            meaning: header.syndrome.to_string(),
            msn: header.msn.value(),
        }),
        atomic_ack_eth: view
            .atomic_ack_eth()
            .map(|header| AtomicAckEthObject { original: hex(header.original) }),
        imm_data: view.imm().map(|header| header.data),
        invalidate_rkey: view.ieth().map(|header| header.rkey.value()),
    }
}

fn mad_object(mad: Result<Mad, MadError>) -> MadObject {
    match mad {
        Ok(Mad { tid, attribute_modifier, message }) => MadObject::Cm {
            attribute: message.attribute().name(),
            tid: tid.to_string(),
            attribute_modifier,
            fields: message
                .fields()
                .into_iter()
                .map(|(name, value)| (name, json_value(value)))
                .collect(),
            cma: message.cma_header().map(|header| CmaObject {
                src: header.src().ip(),
                src_port: header.src_port,
                dst: header.dst(),
            }),
        },
        Err(reason) => {
            MadObject::Refused { reason: reason.to_string(), reason_name: reason.name() }
        }
    }
}

/// Numbers in messages that stand as such have at most 32 bits; wider ones are text.
fn json_value(value: MadValue<'_>) -> serde_json::Value {
    match value {
        MadValue::Plain(Value::Decimal(number) | Value::Hex(number, _)) => number.into(),
        MadValue::Plain(Value::Flag(flag)) => flag.into(),
        MadValue::Plain(Value::Word(word)) => word.into(),
        MadValue::Text(text) => text.into(),
        MadValue::Bytes(bytes) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
    }
}

fn icrc_object(received: Option<u32>, icrc: Icrc) -> IcrcObject {
    match icrc {
        Icrc::Ok => IcrcObject { ok: Some(true), received, computed: None },
        Icrc::Wrong { computed } => IcrcObject { ok: Some(false), received, computed },
        Icrc::NotCaptured => IcrcObject { ok: None, received: None, computed: None },
    }
}
