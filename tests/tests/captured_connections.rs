//! Connections of real kernels (Linux 6.12 and 6.1, `wire/testdata`) as the oracle: what one end
//! sent is played into this stack's responder, whose answers must be those of the kernel at the
//! other end, field by field.
//!
//! | capture | what it shows |
//! |---|---|
//! | `uc_pingpong` | an unreliable connection: nothing is answered; and what this stack sends is what the kernel sent |
//! | `srq_pingpong` | four queue pairs on a shared receive queue: acknowledgements, message numbers |
//! | `rnr` | a receiver that is often not ready: RNR NAKs, acknowledgements of copies |
//!
//! # Where the answers differ
//! After an RNR NAK, `rdma_rxe` also tells a sequence error for the packets that follow it
//! (`rxe_resp.c`: the early packet is met in the state that the NAK has left), with the same PSN.
//! This stack says nothing then: the sender has been told to come back, and the PSN of a sequence
//! NAK would make it come back at once. Those NAKs are left out of the comparison, and counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator};
use urxe_stack::cq::{Completion, Cq, WcOpcode};
use urxe_stack::device::{Device, DeviceConfig, QpHandle, ReceiveScratch};
use urxe_stack::memory::{Access, Buffer, Mr};
use urxe_stack::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_stack::qp::wr::{Destination, Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge};
use urxe_stack::srq::{Srq, SrqAttr, SrqInit};
use urxe_stack::time::Time;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Frame, Gid, IcrcSeed, NakCode, PacketView, Psn, Qpn, ROCE_PORT, Syndrome};

/// Both kernels' addresses.
const ENDS: [[u8; 4]; 2] = [[10, 77, 0, 11], [10, 77, 0, 12]];
/// More than a message of these captures.
const MESSAGE: usize = 4096;

/// A packet of a capture, from BTH to ICRC.
struct Captured {
    from: IpAddr,
    to: IpAddr,
    bytes: Vec<u8>,
}

impl Captured {
    fn view(&self) -> PacketView<'_> {
        PacketView::parse(&self.bytes).unwrap()
    }
}

fn capture(name: &str) -> Vec<Captured> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata").join(name);
    let file = std::fs::read(path).unwrap();
    let mut reader = LegacyPcapReader::new(1 << 20, &file[..]).unwrap();
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(block) = block
                    && let Ok(frame) = Frame::parse(block.data)
                    && frame.repr.dst.port() == ROCE_PORT
                {
                    let (from, to) = (frame.repr.src.ip(), frame.repr.dst.ip());
                    let captured = Captured { from, to, bytes: frame.udp_payload.to_vec() };
                    // What goes to queue pair 1 is the kernel's management traffic.
                    if captured.view().dest_qp() != Qpn::QP1 {
                        packets.push(captured);
                    }
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[derive(Default)]
struct Sent(Mutex<VecDeque<Vec<u8>>>);

impl Transmit for Sent {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.0.lock().unwrap().extend(run.segments().map(<[u8]>::to_vec));
        SendOutcome::Sent
    }
}

/// A queue pair in the place of one of the kernel's.
struct Stand {
    qp: QpHandle,
    /// What the kernel's peer called itself.
    peer: Qpn,
    expected: Psn,
}

/// This stack in the place of one end.
struct End {
    device: Device,
    cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    buffer: Arc<Buffer>,
    mr: Mr,
    /// By the number that the captured packets have.
    stands: BTreeMap<u32, Stand>,
    sent: Sent,
    scratch: ReceiveScratch,
    posted: u64,
}

impl End {
    /// The end at `own` of what `packets` show.
    fn new(
        packets: &[Captured],
        own: IpAddr,
        peer: IpAddr,
        qp_type: QpType,
        is_shared: bool,
    ) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(own)], 1);
        config.active_mtu = PathMtu::Mtu1024;
        let device = Device::new(config);
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(512, None, 0).unwrap();
        let buffer = Arc::new(Buffer::new(MESSAGE).unwrap());
        let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
        let mr = device.memory().register_buffer(pd, &buffer, 0..MESSAGE, 0, access).unwrap();
        let attr = SrqAttr { max_wr: 256, max_sge: 1, srq_limit: 0 };
        let srq = is_shared
            .then(|| device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 }).unwrap());
        let mut stands = BTreeMap::new();
        let requests = || packets.iter().filter(|p| p.to == own && p.view().info().is_request);
        for first in requests() {
            let number = first.view().dest_qp().value();
            if stands.contains_key(&number) {
                continue;
            }
            let (send_cq, recv_cq) = (Arc::clone(&cq), Arc::clone(&cq));
            let cap = QpCap {
                max_send_wr: 64,
                max_recv_wr: 256,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            };
            let init =
                QpInit { qp_type, pd, send_cq, recv_cq, srq: srq.clone(), cap, sq_sig_all: true };
            let qp = device.create_qp(&init).unwrap();
            // Its peer is whom it answered; an unreliable one has one peer only.
            let peers = packets
                .iter()
                .filter(|p| p.from == own)
                .map(|p| (p.view().dest_qp(), p.view().psn()));
            let mine =
                requests().filter(|p| p.view().dest_qp().value() == number).map(|p| p.view().psn());
            let psns: Vec<Psn> = mine.collect();
            let peer_qpn = peers
                .clone()
                .find(|(_, psn)| psns.contains(psn))
                .or_else(|| peers.clone().next())
                .map_or(Qpn::masked(2), |(qpn, _)| qpn);
            let expected = first.view().psn();
            let own_psn = packets
                .iter()
                .find(|p| {
                    p.from == own && p.view().info().is_request && p.view().dest_qp() == peer_qpn
                })
                .map_or(Psn::new(0), |p| p.view().psn());
            connect(&device, qp, qp_type, peer, peer_qpn, [expected, own_psn]);
            stands.insert(number, Stand { qp, peer: peer_qpn, expected });
        }
        let (sent, scratch) = (Sent::default(), ReceiveScratch::default());
        Self { device, cq, srq, buffer, mr, stands, sent, scratch, posted: 0 }
    }

    fn sge(&self, len: usize) -> Sge {
        Sge { addr: 0, length: len as u32, lkey: self.mr.lkey }
    }

    fn post_recv(&mut self, number: u32) {
        let request = RecvRequest { wr_id: self.posted, sges: &[self.sge(MESSAGE)] };
        self.posted += 1;
        match &self.srq {
            Some(srq) => srq.post(&[request]).unwrap(),
            None => self.device.post_recv(Time::ZERO, self.stands[&number].qp, &[request]).unwrap(),
        }
    }

    /// Delivers a captured packet to the queue pair in its receiver's place; what is answered, with
    /// the kernel's numbers.
    fn deliver(&mut self, packet: &Captured) -> Vec<Vec<u8>> {
        let number = packet.view().dest_qp().value();
        let mut bytes = packet.bytes.clone();
        bytes[5..8].copy_from_slice(&self.stands[&number].qp.qpn().value().to_be_bytes()[1..]);
        let end = bytes.len() - ICRC_LEN;
        let seed = IcrcSeed::new(packet.from, ROCE_PORT, packet.to, ROCE_PORT).unwrap();
        seed.append(0, &mut bytes, end).unwrap();
        let datagrams = Datagrams {
            from: packet.from,
            from_port: ROCE_PORT,
            to: packet.to,
            segment_size: bytes.len(),
            bytes: &bytes,
            traffic_class: 0,
            hop_limit: 64,
        };
        self.device.receive(Time::ZERO, &datagrams, &mut self.scratch);
        self.sent()
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        self.device.transmit_pending(Time::ZERO, &self.sent);
        self.sent.0.lock().unwrap().drain(..).collect()
    }

    fn completion(&self) -> Option<Completion> {
        let mut one = [Completion::default()];
        (self.cq.poll(&mut one).unwrap() == 1).then_some(one[0])
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read(0, &mut bytes).unwrap();
        bytes
    }
}

fn connect(
    device: &Device,
    qp: QpHandle,
    qp_type: QpType,
    peer: IpAddr,
    dest_qp_num: Qpn,
    psns: [Psn; 2],
) {
    let attr = QpAttr {
        port_num: 1,
        path_mtu: PathMtu::Mtu1024,
        dest_qp_num,
        rq_psn: psns[0],
        sq_psn: psns[1],
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        // As ibv_rc_pingpong and its like set them.
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ah: AddressVector {
            dgid: Gid::from_ip(peer),
            is_global: true,
            port_num: 1,
            hop_limit: 1,
            ..AddressVector::default()
        },
        ..QpAttr::default()
    };
    for (from, to) in [
        (QpState::Reset, QpState::Init),
        (QpState::Init, QpState::Rtr),
        (QpState::Rtr, QpState::Rts),
    ] {
        let mask = transition::attributes(from, to, qp_type).unwrap().required | QpAttrMask::STATE;
        device.modify_qp(Time::ZERO, qp, &QpAttr { qp_state: to, ..attr }, mask).unwrap();
    }
}

fn syndrome(packet: &Captured) -> Option<Syndrome> {
    packet.view().aeth().map(|aeth| aeth.syndrome)
}

/// A message, and which queue pair of the capture it was for.
type Message = (u32, Vec<u8>);

/// Plays what the other end sent into this stack in the place of `own`. How many answers were
/// equal, and how many sequence NAKs of the kernel were left out; what was received, by which queue
/// pair.
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
    // What the kernel in this place answered, one queue pair as the next.
    let mut answers: BTreeMap<u32, VecDeque<&Captured>> = BTreeMap::new();
    for packet in packets.iter().filter(|p| p.from == own && p.view().info().is_response) {
        answers.entry(packet.view().dest_qp().value()).or_default().push_back(packet);
    }
    let requests =
        packets.iter().filter(|packet| packet.to == own && packet.view().info().is_request);
    for packet in requests {
        let (view, number) = (packet.view(), packet.view().dest_qp().value());
        let due = answers.entry(end.stands[&number].peer.value()).or_default();
        let is_next = view.psn() == end.stands[&number].expected;
        let refused = due.front().is_some_and(|answer| {
            matches!(syndrome(answer), Some(Syndrome::RnrNak(_)))
                && answer.view().psn() == view.psn()
        });
        if is_next && !refused {
            end.stands.get_mut(&number).unwrap().expected = view.psn().next();
        }
        if is_next && !refused && view.info().position.is_start() {
            // The kernel took the message, so its program had posted a receive.
            end.post_recv(number);
        }
        for ours in end.deliver(packet) {
            let due = answers.get_mut(&end.stands[&number].peer.value()).unwrap();
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
        while let Some(wc) = end.completion() {
            assert!(wc.status.is_success(), "{name}: {wc:?}");
            assert_eq!(wc.opcode, WcOpcode::Recv, "{name}: {wc:?}");
            let by = end.stands.iter().find(|(_, stand)| stand.qp.qpn() == wc.qp_num);
            let (number, _) = by.unwrap_or_else(|| panic!("{name}: {wc:?} is nobody's"));
            received.push((*number, end.memory(wc.byte_len as usize)));
        }
    }
    let left: usize = answers.values().map(VecDeque::len).sum();
    assert_eq!(left, 0, "{name}: so many answers of the kernel have no counterpart");
    (equal, left_out, received)
}

fn is_sequence_nak_of(answer: &Captured, rnr: &Captured) -> bool {
    matches!(syndrome(answer), Some(Syndrome::Nak(NakCode::PsnSequence)))
        && answer.view().psn() == rnr.view().psn()
}

/// The messages that one end of a capture sent, each put together from its packets; copies left
/// out.
fn messages(name: &str, to: usize) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut seen = BTreeMap::new();
    for packet in capture(name)
        .iter()
        .filter(|p| p.to == IpAddr::from(ENDS[to]) && p.view().info().is_request)
    {
        let view = packet.view();
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

/// With the queue pair's number put in, what this stack sends is what the kernel sent.
#[test]
fn an_unreliable_message_is_byte_for_byte_the_kernels() {
    for own in [0, 1] {
        let packets = capture("uc_pingpong.pcap");
        let (here, there) = (IpAddr::from(ENDS[own]), IpAddr::from(ENDS[1 - own]));
        let end = End::new(&packets, here, there, QpType::Uc, false);
        let stand = end.stands.values().next().unwrap();
        let mut sent = Vec::new();
        for (_, message) in messages("uc_pingpong.pcap", 1 - own) {
            end.buffer.write(0, &message).unwrap();
            let sges = [end.sge(message.len())];
            let (to, flags) = (Destination::Peer, SendFlags::empty());
            let request = SendRequest {
                wr_id: 1,
                op: SendOp::Send,
                to,
                flags,
                payload: Payload::Sges(&sges),
            };
            end.device.post_send(Time::ZERO, stand.qp, &[request]).unwrap();
            sent.extend(end.sent());
        }
        let kernels: Vec<&Captured> = packets.iter().filter(|packet| packet.from == here).collect();
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
