//! Forged packets: a valid ICRC, and fields that are random or that the attacker chooses.

use std::net::IpAddr;

use urxe_stack::qp::attr::QpType;
use urxe_stack::rng::Rng;
use urxe_test_support::wire::PacketRun;
use urxe_wire::opcode::HeaderSet;
use urxe_wire::packet::{ICRC_LEN, pad_count};
use urxe_wire::{Bth, IcrcSeed, Opcode, ROCE_PORT};

/// The longest payload: the path MTU of the queue pairs.
pub const MTU: usize = 1024;
/// The bytes of the IPv4 and UDP headers.
const NETWORK_HEADERS: usize = 28;
/// The bits of an opcode that state its service.
const SERVICE: u8 = 0b1110_0000;

/// The fields of a forged packet that its attacker chooses with care.
#[derive(Clone, Copy, Default)]
pub struct Hostile {
    pub psn: u32,
    pub from_port: u16,
    pub dest_qp: u32,
    /// The service bits of three of four opcodes.
    pub service: u8,
    /// The number of a shared receive queue, for packets with an XRCETH.
    pub srq: u32,
    /// The Q_Key, for packets with a DETH.
    pub qkey: u32,
    /// A key and an address range, for packets with a RETH.
    pub target: Option<(u32, u64, u32)>,
}

impl Hostile {
    /// Returns the service bits of the opcode of a packet.
    pub const fn service_of(opcode: u8) -> u8 {
        opcode & SERVICE
    }

    /// Returns the service bits of the opcodes of a service.
    pub const fn service(qp_type: QpType) -> u8 {
        let opcode = match qp_type {
            QpType::Uc => Opcode::UcSendOnly,
            QpType::Ud => Opcode::UdSendOnly,
            QpType::XrcSend | QpType::XrcRecv => Opcode::XrcSendOnly,
            _ => Opcode::RcSendOnly,
        };
        Self::service_of(opcode.byte())
    }
}

/// Returns a packet with a valid ICRC. Opcode, flags, headers and payload are random.
pub fn forge(rng: &mut Rng, from: IpAddr, to: IpAddr, hostile: Hostile) -> PacketRun {
    let random = rng.next_u32() as u8;
    let opcode = if rng.below(4) == 0 { random } else { hostile.service | (random & !SERVICE) };
    let info = Opcode::lookup(opcode);
    let headers = info.map_or(rng.index(40), |info| info.headers_len() - Bth::LEN);
    let payload = match rng.below(4) {
        0 => 0,
        1 => MTU,
        2 => rng.index(9),
        _ => rng.index(MTU + 5),
    };
    let mut bytes =
        vec![0; Bth::LEN + headers + payload + usize::from(pad_count(payload)) + ICRC_LEN];
    rng.fill(&mut bytes);
    bytes[0] = opcode;
    // Solicited, migrated, pad count, version 0.
    bytes[1] = (rng.next_u32() as u8 & 0xc0) | pad_count(payload) << 4;
    if rng.below(20) > 0 {
        bytes[2..4].copy_from_slice(&[0xff, 0xff]);
    }
    bytes[5..8].copy_from_slice(&hostile.dest_qp.to_be_bytes()[1..]);
    bytes[9..12].copy_from_slice(&hostile.psn.to_be_bytes()[1..]);
    let reth = info.and_then(|info| info.offset(HeaderSet::RETH));
    if let (Some(at), Some((key, va, len))) = (reth, hostile.target) {
        bytes[at..at + 8].copy_from_slice(&va.to_be_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&key.to_be_bytes());
        let len = if rng.below(3) == 0 { payload as u32 } else { len };
        bytes[at + 12..at + 16].copy_from_slice(&len.to_be_bytes());
    }
    if let Some(at) = info.and_then(|info| info.offset(HeaderSet::XRCETH)) {
        bytes[at + 1..at + 4].copy_from_slice(&hostile.srq.to_be_bytes()[1..]);
    }
    if let Some(at) = info.and_then(|info| info.offset(HeaderSet::DETH)) {
        bytes[at..at + 4].copy_from_slice(&hostile.qkey.to_be_bytes());
    }
    let end = bytes.len() - ICRC_LEN;
    let icrc = IcrcSeed::new(from, hostile.from_port, to, ROCE_PORT).expect("one family");
    icrc.append(0, &mut bytes, end).expect("there is room");
    let len = bytes.len();
    // One of eight is marked by a router.
    let traffic_class = if rng.below(8) == 0 { 3 } else { 2 };
    let from_port = hostile.from_port;
    PacketRun { from_port, traffic_class, ..PacketRun::new(from, to, bytes, len) }
}

/// Returns the bytes of a run with the headers of IPv4 and UDP.
pub fn on_the_wire(run: &PacketRun) -> usize {
    run.bytes.len() + NETWORK_HEADERS * run.segments().count()
}

/// Returns the packets of a run, each as a run of its own.
pub fn single_packets(run: &PacketRun) -> Vec<PacketRun> {
    let single = |bytes: &[u8]| PacketRun {
        bytes: bytes.to_vec(),
        segment_size: bytes.len(),
        ..run.clone()
    };
    run.segments().map(single).collect()
}
