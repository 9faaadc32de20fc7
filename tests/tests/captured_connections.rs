//! Connections of real kernels (Linux 6.12 and 6.1, `wire/testdata`) as the oracle. The packets of
//! one end are delivered to this stack's responder, whose responses must equal those of the kernel
//! at the other end, field by field.
//!
//! | capture | contents |
//! |---|---|
//! | `uc_pingpong` | an unreliable connection: no responses, and equal packets of both senders |
//! | `srq_pingpong` | four queue pairs on an SRQ: acknowledgements, message numbers |
//! | `rnr` | a receiver that is often not ready: RNR NAKs, acknowledgements of duplicates |
//!
//! # Differences
//! After an RNR NAK, `rdma_rxe` also sends sequence NAKs with the same PSN for the following
//! packets (`rxe_resp.c`: the early packet meets the state that the NAK has left). This stack sends
//! none, because the sender must wait, and a sequence NAK would make the sender go back at once.
//! The comparison leaves those NAKs out and counts them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use urxe_stack::cq::WcOpcode;
use urxe_stack::device::{DeviceConfig, QpHandle};
use urxe_stack::memory::Access;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpCap, QpState, QpType};
use urxe_stack::qp::work_request::{RecvRequest, SendOp};
use urxe_stack::srq::Srq;
use urxe_stack::time::Time;
use urxe_test_support::capture;
use urxe_test_support::host::{Host, HostOptions};
use urxe_test_support::qp::{CAP, attributes};
use urxe_test_support::wire::{PacketRun, Wire};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Gid, NakCode, PacketView, Psn, Qpn, ROCE_PORT, Syndrome};

/// The addresses of both kernels.
const ENDS: [[u8; 4]; 2] = [[10, 77, 0, 11], [10, 77, 0, 12]];
/// Longer than any message of these captures, in bytes.
const MESSAGE: usize = 4096;

/// Returns the packets of a capture, except those to queue pair 1, which are the kernel's
/// management traffic.
fn capture(name: &str) -> Vec<PacketRun> {
    let mut packets = capture::packets(name);
    packets.retain(|packet| parse(packet).dest_qp() != Qpn::QP1);
    packets
}

fn parse(packet: &PacketRun) -> PacketView<'_> {
    PacketView::parse(&packet.bytes).unwrap()
}

/// A queue pair in place of a kernel's queue pair.
struct Substitute {
    qp: QpHandle,
    /// The queue pair number of the kernel's peer.
    peer: Qpn,
    expected: Psn,
}

/// This stack in place of one end.
struct End {
    host: Host,
    srq: Option<Arc<Srq>>,
    /// The queue pairs, by the numbers in the captured packets.
    substitutes: BTreeMap<u32, Substitute>,
    wire: Wire,
    posted: u64,
}

impl End {
    /// Creates the end at `own` from the captured packets.
    fn new(
        packets: &[PacketRun],
        own: IpAddr,
        peer: IpAddr,
        qp_type: QpType,
        is_shared: bool,
    ) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(own)], 1);
        config.active_mtu = PathMtu::Mtu1024;
        let options = HostOptions {
            qp_type,
            cap: QpCap { max_recv_wr: 256, ..CAP },
            cq_entries: 512,
            has_recv_cq: false,
            memory: MESSAGE,
            access: Access::LOCAL_WRITE | Access::ZERO_BASED,
        };
        let host = Host::with(own, config, options);
        let srq = is_shared.then(|| host.create_srq(host.pd, 256, None));
        let mut substitutes = BTreeMap::new();
        for first in packets.iter().filter(|p| p.to == own && parse(p).info().is_request) {
            let number = parse(first).dest_qp().value();
            if substitutes.contains_key(&number) {
                continue;
            }
            let qp = host.create(&QpInit { srq: srq.clone(), sq_sig_all: true, ..host.init() });
            let peer_qpn = peer_of(packets, own, number);
            let expected = parse(first).psn();
            let own_psn = packets
                .iter()
                .map(|p| (p, parse(p)))
                .find(|(p, v)| p.from == own && v.info().is_request && v.dest_qp() == peer_qpn)
                .map_or(Psn::new(0), |(_, view)| view.psn());
            // The attributes of ibv_rc_pingpong and similar programs.
            let attr = QpAttr {
                access_flags: Access::empty(),
                rq_psn: expected,
                sq_psn: own_psn,
                max_rd_atomic: 1,
                max_dest_rd_atomic: 1,
                ..attributes(peer, peer_qpn)
            };
            let attr = QpAttr { ah: AddressVector { hop_limit: 1, ..attr.ah }, ..attr };
            host.bring_up((qp, qp_type), &attr, QpState::Rts);
            substitutes.insert(number, Substitute { qp, peer: peer_qpn, expected });
        }
        Self { host, srq, substitutes, wire: Wire::default(), posted: 0 }
    }

    fn post_recv(&mut self, number: u32) {
        let (wr_id, sges) = (self.posted, [self.host.sge(0, MESSAGE as u32)]);
        self.posted += 1;
        match &self.srq {
            Some(srq) => srq.post(&[RecvRequest { wr_id, sges: &sges }]).unwrap(),
            None => self.host.post_recv_on(self.substitutes[&number].qp, wr_id, &sges),
        }
    }

    /// Delivers a captured packet to the queue pair in its receiver's place. Returns the responses,
    /// with the kernel's numbers.
    fn deliver(&mut self, packet: &PacketRun) -> Vec<Vec<u8>> {
        let mut packet = PacketRun { from_port: ROCE_PORT, ..packet.clone() };
        let number = parse(&packet).dest_qp().value();
        packet.readdress(self.substitutes[&number].qp.qpn());
        self.wire.deliver(&self.host.device, Time::ZERO, &packet);
        self.sent()
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        self.host.transmit(&self.wire);
        let runs = self.wire.take();
        runs.iter().flat_map(PacketRun::segments).map(<[u8]>::to_vec).collect()
    }
}

/// Returns the queue pair that received the responses of the one with this number. An unreliable
/// one has one peer only.
fn peer_of(packets: &[PacketRun], own: IpAddr, number: u32) -> Qpn {
    let psns: Vec<Psn> = packets
        .iter()
        .filter(|p| p.to == own)
        .map(parse)
        .filter(|view| view.info().is_request && view.dest_qp().value() == number)
        .map(|view| view.psn())
        .collect();
    let mut answers = packets.iter().filter(|p| p.from == own).map(parse);
    let first = answers.clone().next();
    let answer = answers.find(|view| psns.contains(&view.psn())).or(first);
    answer.map_or(Qpn::masked(2), |view| view.dest_qp())
}

fn syndrome(packet: &PacketRun) -> Option<Syndrome> {
    parse(packet).aeth().map(|aeth| aeth.syndrome)
}

/// A message, after the captured number of its queue pair.
type Message = (u32, Vec<u8>);

/// Delivers the other end's packets to this stack in place of `own`. Returns the number of equal
/// responses, the number of sequence NAKs left out, and the received messages.
fn replay(
    name: &str,
    own: usize,
    qp_type: QpType,
    is_shared: bool,
) -> (usize, usize, Vec<Message>) {
    let packets = capture(name);
    let (own, peer) = (IpAddr::from(ENDS[own]), IpAddr::from(ENDS[1 - own]));
    let mut end = End::new(&packets, own, peer, qp_type, is_shared);
    let (mut equal, mut left_out, mut received) = (0, 0, Vec::new());
    // The responses of the kernel in this place, by queue pair.
    let mut answers: BTreeMap<u32, VecDeque<&PacketRun>> = BTreeMap::new();
    for packet in packets.iter().filter(|p| p.from == own && parse(p).info().is_response) {
        answers.entry(parse(packet).dest_qp().value()).or_default().push_back(packet);
    }
    let requests =
        packets.iter().filter(|packet| packet.to == own && parse(packet).info().is_request);
    for packet in requests {
        let (number, view) = (parse(packet).dest_qp().value(), parse(packet));
        let due = answers.entry(end.substitutes[&number].peer.value()).or_default();
        let is_next = view.psn() == end.substitutes[&number].expected;
        let refused = due.front().is_some_and(|answer| {
            matches!(syndrome(answer), Some(Syndrome::RnrNak(_)))
                && parse(answer).psn() == view.psn()
        });
        if is_next && !refused {
            end.substitutes.get_mut(&number).unwrap().expected = view.psn().next();
        }
        if is_next && !refused && view.info().position.is_start() {
            // The kernel accepted the message, so its program had posted a receive.
            end.post_recv(number);
        }
        for ours in end.deliver(packet) {
            let due = answers.get_mut(&end.substitutes[&number].peer.value()).unwrap();
            let kernels =
                due.pop_front().unwrap_or_else(|| panic!("{name}: {ours:02x?} is one too many"));
            let icrc = ours.len() - ICRC_LEN;
            assert_eq!(
                ours[..icrc],
                kernels.bytes[..kernels.bytes.len() - ICRC_LEN],
                "{name}, {view:?}"
            );
            equal += 1;
            let rnr = matches!(syndrome(kernels), Some(Syndrome::RnrNak(_)));
            while rnr && due.front().is_some_and(|next| is_sequence_nak_of(next, kernels)) {
                due.pop_front();
                left_out += 1;
            }
        }
        while let Some(wc) = end.host.completion() {
            assert!(wc.status.is_success(), "{name}: {wc:?}");
            assert_eq!(wc.opcode, WcOpcode::Recv, "{name}: {wc:?}");
            let by =
                end.substitutes.iter().find(|(_, substitute)| substitute.qp.qpn() == wc.qp_num);
            let (number, _) = by.unwrap_or_else(|| panic!("{name}: {wc:?} belongs to no request"));
            received.push((*number, end.host.bytes(0, wc.byte_len as usize)));
        }
    }
    let left: usize = answers.values().map(VecDeque::len).sum();
    assert_eq!(left, 0, "{name}: so many answers of the kernel have no counterpart");
    (equal, left_out, received)
}

fn is_sequence_nak_of(answer: &PacketRun, rnr: &PacketRun) -> bool {
    matches!(syndrome(answer), Some(Syndrome::Nak(NakCode::PsnSequence)))
        && parse(answer).psn() == parse(rnr).psn()
}

/// Returns the messages that one end of a capture sent, reassembled from their packets without
/// duplicates.
fn messages(name: &str, to: usize) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut seen = BTreeMap::new();
    for packet in capture(name)
        .iter()
        .filter(|p| p.to == IpAddr::from(ENDS[to]) && parse(p).info().is_request)
    {
        let view = parse(packet);
        let place = (view.dest_qp().value(), view.psn().value());
        if let Some(at) = seen.get(&place) {
            assert!(*at < messages.len());
            continue;
        }
        let before = seen.get(&(place.0, view.psn().sub(1).value())).copied();
        let at = match before {
            Some(at) if !view.info().position.is_start() => at,
            _ => {
                messages.push((place.0, Vec::new()));
                messages.len() - 1
            }
        };
        messages[at].1.extend(view.payload());
        seen.insert(place, at);
    }
    messages
}

#[test]
fn an_unreliable_connection_answers_nothing_and_receives_everything() {
    for own in [0, 1] {
        let (equal, left_out, received) = replay("uc_pingpong.pcap", own, QpType::Uc, false);
        assert_eq!((equal, left_out), (0, 0));
        let expected = messages("uc_pingpong.pcap", own);
        assert!(expected.len() >= 5, "{} messages are too few to prove anything", expected.len());
        assert_eq!(received, expected);
    }
}

/// With the kernel's queue pair number, the packets of this stack equal the kernel's.
#[test]
fn an_unreliable_message_is_byte_for_byte_the_kernels() {
    for own in [0, 1] {
        let packets = capture("uc_pingpong.pcap");
        let (here, there) = (IpAddr::from(ENDS[own]), IpAddr::from(ENDS[1 - own]));
        let end = End::new(&packets, here, there, QpType::Uc, false);
        let substitute = end.substitutes.values().next().unwrap();
        let mut sent = Vec::new();
        for (_, message) in messages("uc_pingpong.pcap", 1 - own) {
            end.host.write(0, &message);
            end.host.post_on(substitute.qp, SendOp::Send, &[end.host.sge(0, message.len() as u32)]);
            sent.extend(end.sent());
        }
        let kernels: Vec<&PacketRun> =
            packets.iter().filter(|packet| packet.from == here).collect();
        assert_eq!(sent.len(), kernels.len());
        for (ours, kernels) in sent.iter().zip(kernels) {
            assert_eq!(
                ours[..ours.len() - ICRC_LEN],
                kernels.bytes[..kernels.bytes.len() - ICRC_LEN]
            );
        }
    }
}

#[test]
fn queue_pairs_on_a_shared_receive_queue_answer_as_the_kernels() {
    for own in [0, 1] {
        let (equal, left_out, received) = replay("srq_pingpong.pcap", own, QpType::Rc, true);
        let expected = messages("srq_pingpong.pcap", own);
        assert_eq!((equal, left_out), (expected.len(), 0));
        assert_eq!(received, expected);
        assert!(equal >= 20, "{equal} answers are too few to prove anything");
        let queue_pairs: BTreeSet<u32> = received.iter().map(|(number, _)| *number).collect();
        assert_eq!(queue_pairs.len(), 4, "each has taken from the one queue");
    }
}

#[test]
fn a_receiver_that_is_not_ready_answers_as_the_kernel() {
    let (equal, left_out, received) = replay("rnr.pcap", 0, QpType::Rc, false);
    let expected = messages("rnr.pcap", 0);
    assert_eq!(received, expected);
    assert!(equal >= 25 && left_out >= 5, "{equal} answers, {left_out} left out");
}
