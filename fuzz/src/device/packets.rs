//! Packets that a peer could send.

use std::net::IpAddr;
use std::sync::LazyLock;

use urxe_test_support::wire::PacketRun;
use urxe_wire::packet::{ICRC_LEN, MAX_PACKET_LEN, MAX_PAYLOAD};
use urxe_wire::{
    Aeth, Bth, Deth, Ext, HeaderSet, IcrcSeed, Kind, Msn, Opcode, PKey, PacketRepr, PacketView,
    PayloadRule, Psn, Qpn, ROCE_PORT, Service, Syndrome, XrcEth,
};

use super::plan::Packet;
use super::scenario::Scenario;
use super::services::{GROUPS, QKEY};
use crate::headers::ext;

/// The services of queue pairs.
const SERVICES: [Service; 4] = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc];

/// A request that the device has sent.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The index of the queue pair in the scenario.
    pub qp: usize,
    /// The opcode.
    pub opcode: Opcode,
    /// The PSN.
    pub psn: Psn,
    /// The length of a READ, in bytes.
    pub dma_len: u32,
}

/// Appends an ICRC, which is correct unless `broken`.
pub fn with_icrc(
    from: IpAddr,
    to: IpAddr,
    mut bytes: Vec<u8>,
    identification: u16,
    broken: bool,
) -> PacketRun {
    let end = bytes.len();
    bytes.resize(end + ICRC_LEN, 0);
    let segment_size = bytes.len();
    let mut packet = PacketRun::new(from, to, bytes, segment_size);
    packet.icrc_seed().append(identification, &mut packet.bytes, end).expect("there is room");
    if broken {
        packet.bytes[end] ^= 1;
    }
    packet
}

/// Returns a packet with these headers.
fn emit(
    from: IpAddr,
    to: IpAddr,
    repr: &PacketRepr,
    payload: &[u8],
    identification: u16,
    broken: bool,
) -> PacketRun {
    let mut bytes = vec![0; MAX_PACKET_LEN];
    let end = repr.emit(payload, &mut bytes).expect("headers are the opcode's");
    bytes.truncate(end);
    with_icrc(from, to, bytes, identification, broken)
}

/// Builds a packet of the plan. Flag bits: 0 A, 1 SE, 2 F, 3 B, 4 M. All of bits 5 to 7 break the
/// ICRC, 8 to 10 the P_Key, 11 to 13 the source address, 14 and 15 the QPN.
pub fn build(scenario: &Scenario, packet: &Packet, identification: u16) -> PacketRun {
    let qp = scenario.qp_of(packet.qp);
    static ALL: LazyLock<Vec<Opcode>> = LazyLock::new(|| Opcode::all().collect());
    static BY_SERVICE: LazyLock<[Vec<Opcode>; 4]> = LazyLock::new(|| {
        SERVICES.map(|service| Opcode::all().filter(|o| o.info().service == service).collect())
    });
    let nr = usize::from(packet.opcode);
    let service = qp.kind.qp_type.service();
    let own =
        SERVICES.iter().position(|s| *s == service).map_or(&BY_SERVICE[0], |at| &BY_SERVICE[at]);
    let opcode = if nr < 240 { own[nr % own.len()] } else { ALL[nr * 7 % ALL.len()] };
    let info = opcode.info();
    let set = |bit: u16| packet.flags >> bit & 1 != 0;
    let all = |bits: u16| packet.flags & bits == bits;

    let near = if info.is_response { qp.last_sent } else { qp.expected };
    let psn = match packet.psn {
        i8::MIN => Psn::new(packet.values.msn),
        far @ (-127..=-120) => near.sub((i32::from(far) + 128) as u32 * 20_000),
        far @ 120..=127 => near.add((i32::from(far) - 119) as u32 * 20_000),
        by => Psn::new(near.value().wrapping_add(by as i32 as u32)),
    };
    // One in eight goes to a group, or names the group's queue pair number.
    let (to, is_for_group) = match packet.values.compare >> 3 & 0x3f {
        odd @ 0..8 => (GROUPS[odd as usize % GROUPS.len()], odd != 7),
        8 => (scenario.address(), true),
        _ => (scenario.address(), false),
    };
    let qpn = match is_for_group {
        _ if all(0xc000) => Qpn::masked(packet.values.msn),
        true => Qpn::MULTICAST,
        false => qp.qpn,
    };
    let mut bth = Bth::new(opcode, qpn, psn);
    (bth.ack_req, bth.solicited, bth.fecn, bth.becn, bth.mig_req) =
        (set(0), set(1), set(2), set(3), set(4));
    if all(0x0700) {
        bth.pkey = PKey(packet.values.rkey as u16);
    }

    let mtu = scenario.mtu;
    let len = match info.payload {
        PayloadRule::None => 0,
        PayloadRule::Exactly(n) => usize::from(n),
        PayloadRule::Any if !info.position.is_end() && packet.payload < 250 => mtu,
        PayloadRule::Any => match packet.payload {
            few @ 0..128 => usize::from(few),
            128..192 => mtu,
            192..240 => mtu / 2 + usize::from(packet.payload),
            _ => mtu * 2 - usize::from(packet.payload),
        },
    };
    let payload = vec![packet.payload ^ 0x5c; len.min(MAX_PAYLOAD)];
    let mut values = packet.values;
    let (addr, length, key) = scenario.remote(packet.place);
    (values.va, values.rkey) = (addr, key);
    values.dma_len = match (packet.own_length, info.position.is_end()) {
        (true, _) => length,
        (false, true) => payload.len() as u32,
        (false, false) => {
            payload.len() as u32 * u32::from(packet.place.length % 8 + 1)
                + u32::from(packet.payload % 3)
        }
    };
    let is_odd = packet.values.compare & 7 == 7;
    let srq = if is_odd { qpn } else { Qpn::masked(scenario.xrc_srq()) };
    let xrceth = info.has(HeaderSet::XRCETH).then_some(XrcEth { srq });
    let ext = match ext(opcode, &values) {
        Ext::Deth(deth) if !is_odd => Ext::Deth(Deth { qkey: QKEY, ..deth }),
        Ext::DethImm(deth, imm) if !is_odd => Ext::DethImm(Deth { qkey: QKEY, ..deth }, imm),
        ext => ext,
    };
    let repr = PacketRepr { bth, xrceth, ext };
    let from = if all(0x3800) { scenario.unconnected_host() } else { qp.peer };
    emit(from, to, &repr, &payload, identification, all(0x00e0))
}

/// Returns the responses of a correct peer, without the first `skip` responses of a READ.
pub fn answers(
    scenario: &Scenario,
    request: &Request,
    acknowledge: bool,
    skip: u32,
) -> Vec<PacketRun> {
    let qp = &scenario.qps[request.qp];
    let Request { psn, dma_len, .. } = *request;
    let values = crate::headers::Values {
        syndrome: Syndrome::ACK.byte(),
        swap_or_add: 0x0123_4567_89ab_cdef,
        ..Default::default()
    };
    let packet = |opcode: Opcode, psn: Psn, len: usize| {
        let repr = PacketRepr::new(Bth::new(opcode, qp.qpn, psn), ext(opcode, &values));
        emit(qp.peer, scenario.address(), &repr, &vec![0x77; len], 0, false)
    };
    match request.opcode.info().kind {
        Kind::ReadRequest if !acknowledge => {
            let count = dma_len.div_ceil(scenario.mtu as u32).max(1);
            // A few responses at a time; another step sends the rest.
            (skip.min(count)..count.min(skip + 16))
                .map(|i| {
                    let left = dma_len - i * scenario.mtu as u32;
                    let opcode = match (i == 0, i + 1 == count) {
                        (true, true) => Opcode::RcReadResponseOnly,
                        (true, false) => Opcode::RcReadResponseFirst,
                        (false, false) => Opcode::RcReadResponseMiddle,
                        (false, true) => Opcode::RcReadResponseLast,
                    };
                    packet(opcode, psn.add(i), (left as usize).min(scenario.mtu))
                })
                .collect()
        }
        Kind::CompareSwap | Kind::FetchAdd if !acknowledge => {
            vec![packet(Opcode::RcAtomicAcknowledge, psn, 0)]
        }
        _ => vec![acknowledgement(scenario, request, Syndrome::ACK.byte())],
    }
}

/// Returns an acknowledgement with this syndrome.
pub fn acknowledgement(scenario: &Scenario, request: &Request, syndrome: u8) -> PacketRun {
    let qp = &scenario.qps[request.qp];
    let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::masked(0) };
    let bth = Bth::new(Opcode::RcAcknowledge, qp.qpn, request.psn);
    let repr = PacketRepr::new(bth, Ext::Aeth(aeth));
    emit(qp.peer, scenario.address(), &repr, &[], 0, false)
}

/// Checks a packet that the device sent, and records the values for responses and further requests.
pub fn note_sent(scenario: &mut Scenario, to: IpAddr, packet: &[u8], identification: u16) {
    let seed = IcrcSeed::new(scenario.address(), ROCE_PORT, to, ROCE_PORT).expect("one family");
    let view = PacketView::parse(packet).expect("a sent packet parses");
    let icrc = seed.icrc(identification, true, view.without_icrc());
    assert_eq!(icrc, view.icrc(), "the ICRC of a sent packet");
    // A datagram is limited by the device's path MTU only.
    let mtu = if view.info().service == Service::Ud { MAX_PAYLOAD } else { scenario.mtu };
    assert!(view.payload_len() <= mtu, "no packet is longer than the MTU");
    assert_eq!(
        to.is_multicast(),
        view.dest_qp() == Qpn::MULTICAST,
        "the multicast QPN and a multicast address belong together"
    );
    if to.is_multicast() {
        return;
    }
    // The peer of every queue pair has a number of its own.
    let Some(qp) = scenario.qps.iter().position(|qp| qp.dest_qpn == view.dest_qp()) else {
        panic!("sent to {}, which is no queue pair's peer", view.dest_qp());
    };
    if view.info().is_request {
        let dma_len = view.reth().map_or(0, |reth| reth.dma_len);
        scenario.qps[qp].last_sent = view.psn();
        scenario.requests.push(Request { qp, opcode: view.opcode(), psn: view.psn(), dma_len });
    } else if let Some(aeth) = view.aeth() {
        scenario.qps[qp].expected = match aeth.syndrome {
            Syndrome::Ack(_) => view.psn().next(),
            _ => view.psn(),
        };
    }
}
