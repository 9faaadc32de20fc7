//! Puts one packet of every kind in the captures into the corpora of the packet targets, as a UDP
//! payload and as a frame. The same packets are forwarded packets, records of capture files, and
//! messages of rsockets. A listing of two connections is in the corpus of listings.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use urxe_rsocket::protocol::datagram::{UdpHeader, UdpOp, header};
use urxe_stack::listing::{ListedId, ListedQp, Listing};
use urxe_stack::port::Datagrams;
use urxe_stack::port::sharing::forward;
use urxe_wire::pcapng::{
    Direction, LinkType, PacketRecord, enhanced_packet, interface_description, section_header,
};

use urxe_test_support::capture;
use urxe_wire::mad::{CmMessage, Mad};
use urxe_wire::{Frame, PacketView, ROCE_PORT};

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut seen, mut kept) = (BTreeSet::new(), Ok(()));
    for name in capture::names() {
        capture::frames(&name, |frame| {
            if kept.is_ok() {
                kept = keep(here, frame, &mut seen);
            }
        });
    }
    println!("{} kinds of packet", seen.len());
    kept?;
    write(here, "listing", "two_connections", &listing().to_cbor())?;
    write(here, "listing", "empty", &Listing::default().to_cbor())?;
    for from in ["10.0.0.1:7174", "[fe80::7]:9"].map(address) {
        let name = if from.is_ipv4() { "v4" } else { "v6" };
        write(here, "rsocket", &format!("header_{name}"), &[&header(from), &b"data"[..]].concat())?;
        for (op, which) in [(UdpOp::Data, "data"), (UdpOp::Control, "control")] {
            let message = UdpHeader { op, qpn: 0x12_3456, from: from.ip() }.to_bytes();
            write(here, "rsocket", &format!("udp_{which}_{name}"), &message)?;
        }
    }
    for name in capture::names() {
        keep_file(here, &name)?;
    }
    Ok(())
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn write(here: &Path, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let corpus = here.join("corpus").join(target);
    std::fs::create_dir_all(&corpus)?;
    std::fs::write(corpus.join(name), bytes)
}

/// Returns a listing with a connection and a listener.
fn listing() -> Listing {
    let connection = ListedId {
        cm_idn: 2,
        lqpn: 0x12_3456,
        rqpn: Some(17),
        qp_type: "RC".into(),
        state: "ESTABLISHED".into(),
        cm_state: Some("ESTABLISHED".into()),
        ps: "TCP".into(),
        src_addr: Some(address("10.0.0.1:7174")),
        dst_addr: Some(address("[fe80::7]:40000")),
    };
    let listener = ListedId { state: "LISTEN".into(), ps: "UDP".into(), ..ListedId::default() };
    let qp = ListedQp {
        lqpn: 0x12_3456,
        pdn: 1,
        rqpn: Some(17),
        qp_type: "RC".into(),
        state: "RTS".into(),
        rq_psn: Some(0xff_ffff),
        sq_psn: 7,
        path_mig_state: Some("MIGRATED".into()),
    };
    Listing {
        qps: vec![qp, ListedQp::default()],
        ids: vec![listener, connection],
        communications: [("ESTABLISHED".into(), 1)].into(),
        counters: [("cm_tx_msgs/req".into(), 3)].into(),
        resources: [("qp".into(), 2)].into(),
        hw_counters: [("sent_pkts".into(), 7)].into(),
    }
}

/// Keeps the first packets of a capture as a file of each format.
fn keep_file(here: &Path, name: &str) -> std::io::Result<()> {
    let (mut classic, mut count) = (Vec::new(), 0);
    let mut next = Vec::new();
    section_header(&mut next, "urxe");
    interface_description(&mut next, LinkType::Ethernet, "rxe0");
    // A classic file in nanoseconds, little-endian, of Ethernet frames.
    for number in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 1 << 18, 1] {
        classic.extend(number.to_le_bytes());
    }
    capture::frames(name, |data| {
        count += 1;
        if count > 3 || data.len() > 500 {
            return;
        }
        let len = data.len() as u32;
        for number in [count, 1000, len, len] {
            classic.extend(number.to_le_bytes());
        }
        classic.extend(data);
        let (interface, timestamp_ns, snap_len) = (0, u64::from(count) << 31, 200);
        let (direction, comment) = (Some(Direction::Inbound), "dropped");
        let record = PacketRecord { interface, timestamp_ns, data, snap_len, direction, comment };
        enhanced_packet(&mut next, &record);
    });
    let name = name.trim_end_matches(".pcap");
    write(here, "capture", &format!("{name}.pcap"), &classic)?;
    write(here, "capture", &format!("{name}.pcapng"), &next)
}

/// Keeps a packet as another process forwards it.
fn keep_forwarded(here: &Path, name: &str, frame: &Frame<'_>) -> std::io::Result<()> {
    let datagrams = Datagrams {
        from: frame.repr.src.ip(),
        from_port: frame.repr.src.port(),
        to: frame.repr.dst.ip(),
        bytes: frame.udp_payload,
        segment_size: frame.udp_payload.len(),
        traffic_class: 2,
        hop_limit: 64,
    };
    let message = [&forward::header(&datagrams)[..], datagrams.bytes].concat();
    write(here, "forward", name, &message)
}

/// Keeps the private data of an rsocket.
fn keep_private_data(here: &Path, mad: &Mad) -> std::io::Result<()> {
    let (name, data) = match &mad.message {
        CmMessage::Req(req) => ("request", &req.private_data.bytes()[36..]),
        CmMessage::Rep(rep) => ("reply", &rep.private_data.bytes()[..]),
        _ => return Ok(()),
    };
    // The version and flags of an rsocket.
    if data.starts_with(&[1, 2]) { write(here, "rsocket", name, data) } else { Ok(()) }
}

fn keep(here: &Path, bytes: &[u8], seen: &mut BTreeSet<String>) -> std::io::Result<()> {
    let Ok(frame) = Frame::parse(bytes) else { return Ok(()) };
    let Ok(packet) = PacketView::parse(frame.udp_payload) else { return Ok(()) };
    keep_mad(here, &packet, seen)?;
    let syndrome = packet.aeth().map_or(0, |aeth| aeth.syndrome.byte() >> 5);
    let name = format!(
        "{}_{}_{syndrome}",
        packet.info().name.replace(' ', "_").to_lowercase(),
        packet.payload_len() > 0
    );
    let is_v6 = frame.repr.dst.is_ipv6();
    if frame.repr.dst.port() != ROCE_PORT
        || packet.bytes().len() > 400
        || !seen.insert(format!("{name}_{is_v6}"))
    {
        return Ok(());
    }
    let name = format!("{name}_{is_v6}");
    keep_forwarded(here, &name, &frame)?;
    write(here, "packet_parse", &format!("{name}.payload"), packet.bytes())?;
    write(here, "packet_parse", &format!("{name}.frame"), bytes)
}

/// Keeps one MAD of every kind.
fn keep_mad(
    here: &Path,
    packet: &PacketView<'_>,
    seen: &mut BTreeSet<String>,
) -> std::io::Result<()> {
    let Ok(mad) = Mad::parse(packet.payload()) else { return Ok(()) };
    keep_private_data(here, &mad)?;
    // A second MAD of each kind may carry private data.
    let name = mad.message.attribute().name().to_lowercase();
    let Some(name) = [name.clone(), format!("{name}_2")]
        .into_iter()
        .find(|name| seen.insert(format!("mad_{name}")))
    else {
        return Ok(());
    };
    write(here, "mad", &name, packet.payload())
}
