//! Datagrams of real kernels (`ibv_ud_pingpong` of Linux 6.12 and 6.1, `mckey` of 6.12;
//! `wire/testdata`) as the oracle for the datagrams of this stack.

use std::net::IpAddr;

use urxe_stack::cq::{Completion, WcFlags, WcOpcode, WcStatus};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask};
use urxe_stack::qp::work_request::SendOp;
use urxe_test_support::capture;
use urxe_test_support::net::{DatagramNet, HOP_LIMIT, PacketRun, QKEY, payload, to_qp};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Frame, Gid, IcrcSeed, IpRepr, PacketView, Qpn, ROCE_PORT};

/// The length of the captures' Ethernet header, in bytes.
const ETHERNET_LEN: usize = 14;

/// Calls `check` with every datagram of the capture: its frame, and its packet from BTH to ICRC.
fn for_each_datagram(capture: &str, mut check: impl FnMut(&[u8], &Frame<'_>, &PacketView<'_>)) {
    let mut count = 0;
    capture::frames(capture, |bytes| {
        let Ok(frame) = Frame::parse(bytes) else { return };
        if frame.repr.dst.port() != ROCE_PORT {
            return;
        }
        let packet = PacketView::parse(frame.udp_payload).unwrap();
        // Packets to queue pair 1 are the kernel's management traffic.
        if packet.deth().is_some() && packet.dest_qp().value() != 1 {
            check(bytes, &frame, &packet);
            count += 1;
        }
    });
    assert!(count >= 4, "{count} datagrams are too few to prove anything");
}

/// With the numbers of the captured run (queue pairs, PSN, Q_Key), the packets of this stack equal
/// the kernel's.
#[test]
fn a_datagram_is_byte_for_byte_the_kernels() {
    for_each_datagram("ud_pingpong.pcap", |_, frame, packet| {
        let net = DatagramNet::new(2);
        let ah = net.hosts[0].ah(net.hosts[1].address);
        let to = to_qp(ah, net.hosts[1].qp.qpn(), QKEY);
        // The kernel's link had a larger path MTU than these hosts.
        net.post_send(0, 1, to, &packet.payload()[..packet.payload_len().min(1024)]).unwrap();
        let runs = net.on_the_wire();
        let headers = packet.info().headers_len();
        let mut ours = runs[0].bytes[..runs[0].bytes.len() - ICRC_LEN].to_vec();
        let captured = &frame.udp_payload[..ours.len()];
        // Destination queue pair, PSN, Q_Key, source queue pair.
        for numbers in [5..8, 9..12, 12..16, 17..20] {
            ours[numbers.clone()].copy_from_slice(&captured[numbers]);
        }
        assert_eq!(ours[..headers], captured[..headers]);
        assert_eq!(ours, captured);
    });
}

/// The forty bytes in front of a received message hold the IP header that the kernel sent. No
/// socket shows the identification; it follows from the ICRC.
#[test]
fn the_header_in_front_of_a_message_is_the_one_that_was_on_the_wire() {
    for_each_datagram("ud_pingpong.pcap", |bytes, frame, packet| {
        let (from, to): (IpAddr, IpAddr) = (frame.repr.src.ip(), frame.repr.dst.ip());
        let IpRepr::V4 { identification, dont_fragment, .. } = frame.repr.ip else {
            panic!("the capture is of IPv4");
        };
        assert!(dont_fragment);
        let net = DatagramNet::of([to].into_iter());
        net.post_recv(0, 7, 4096 + 40);
        let mut datagram = frame.udp_payload.to_vec();
        datagram[5..8].copy_from_slice(&net.hosts[0].qp.qpn().value().to_be_bytes()[1..]);
        datagram[12..16].copy_from_slice(&QKEY.value().to_be_bytes());
        let end = datagram.len() - ICRC_LEN;
        let from_port = frame.repr.src.port();
        let seed = IcrcSeed::new(from, from_port, to, ROCE_PORT).unwrap();
        seed.append(identification, &mut datagram, end).unwrap();
        deliver(&net, frame, datagram);
        let completion = taken(&net, 0, bytes, frame, packet);
        assert_eq!((completion.flags(), completion.imm_data()), (WcFlags::GRH, None));
    });
}

/// Delivers a datagram of the capture with the addresses of its frame. There is no response.
fn deliver(net: &DatagramNet, frame: &Frame<'_>, bytes: Vec<u8>) {
    let IpRepr::V4 { tos, .. } = frame.repr.ip else { panic!("the capture is of IPv4") };
    let (repr, segment_size) = (&frame.repr, bytes.len());
    let carried = PacketRun::new(repr.src.ip(), repr.dst.ip(), bytes, segment_size);
    net.deliver(&PacketRun { from_port: repr.src.port(), traffic_class: tos, ..carried });
    assert!(net.on_the_wire().is_empty(), "nothing is answered");
}

/// Returns the completion of receive 7 at host `at`, after checking that it contains this datagram
/// behind its own IP header.
fn taken(
    net: &DatagramNet,
    at: usize,
    bytes: &[u8],
    frame: &Frame<'_>,
    packet: &PacketView<'_>,
) -> Completion {
    let IpRepr::V4 { ttl, .. } = frame.repr.ip else { panic!("the capture is of IPv4") };
    let (completion, received) = net.received(at).expect("taken");
    assert_eq!((completion.wr_id, completion.status), (7, WcStatus::Success));
    let len = 40 + packet.payload_len() as u32;
    assert_eq!((completion.opcode, completion.byte_len), (WcOpcode::Recv, len));
    let (src_qp, own) = (packet.deth().unwrap().src_qp, net.hosts[at].qp.qpn());
    assert_eq!((completion.src_qp, completion.qp_num), (src_qp, own));
    assert_eq!(payload(&received), packet.payload());
    assert_eq!(received[..20], [0; 20]);
    assert_eq!(received[20..40], ip_header(bytes, ttl));
    completion
}

/// Returns the IPv4 header of a frame, with the time to live of these tests' wire and the checksum
/// updated (RFC 1624).
fn ip_header(frame: &[u8], ttl: u8) -> Vec<u8> {
    let mut header = frame[ETHERNET_LEN..ETHERNET_LEN + 20].to_vec();
    let sum = u32::from(u16::from_be_bytes([header[10], header[11]]));
    let more = sum + (u32::from(ttl) << 8) + 0xffff - (u32::from(HOP_LIMIT) << 8);
    let folded = (more & 0xffff) + (more >> 16);
    header[10..12]
        .copy_from_slice(&((folded & 0xffff) as u16 + (folded >> 16) as u16).to_be_bytes());
    header[8] = HOP_LIMIT;
    header
}

/// A member receives a message of `mckey` of Linux 6.12 as the kernel's member would, and does not
/// respond.
#[test]
fn a_multicast_message_of_the_kernel_completes_as_it_does_in_the_kernel() {
    for_each_datagram("mckey.pcap", |bytes, frame, packet| {
        let group = frame.repr.dst.ip();
        let deth = packet.deth().unwrap();
        assert_eq!((group.to_string().as_str(), packet.dest_qp()), ("239.7.7.7", Qpn::MULTICAST));
        let net = DatagramNet::new(2);
        for at in 0..2 {
            let host = &net.hosts[at];
            let own_key = QpAttr { qkey: deth.qkey, ..QpAttr::default() };
            host.modify(host.qp, &own_key, QpAttrMask::QKEY);
            host.device.attach_mcast(host.qp, Gid::from_ip(group)).unwrap();
            net.post_recv(at, 7, 140);
        }
        deliver(&net, frame, frame.udp_payload.to_vec());
        for at in 0..2 {
            let completion = taken(&net, at, bytes, frame, packet);
            assert_eq!(completion.byte_len, 140);
            assert_eq!(completion.flags(), WcFlags::GRH | WcFlags::WITH_IMM);
            // mckey sends its queue pair number as immediate data.
            assert_eq!(completion.imm_data(), Some(deth.src_qp.value()));
        }
    });
}

/// With the numbers of the captured run, a multicast message of this stack equals that of `mckey`.
#[test]
fn a_multicast_message_is_byte_for_byte_the_kernels() {
    for_each_datagram("mckey.pcap", |_, frame, packet| {
        let net = DatagramNet::new(1);
        let to = to_qp(
            net.hosts[0].ah(frame.repr.dst.ip()),
            Qpn::MULTICAST,
            packet.deth().unwrap().qkey,
        );
        let op = SendOp::SendImm { imm: packet.imm().unwrap().data };
        net.post_send_op(0, 1, to, op, packet.payload()).unwrap();
        let runs = net.on_the_wire();
        assert_eq!(runs[0].to, frame.repr.dst.ip());
        let mut ours = runs[0].bytes[..runs[0].bytes.len() - ICRC_LEN].to_vec();
        // PSN, source queue pair.
        for numbers in [9..12, 17..20] {
            ours[numbers.clone()].copy_from_slice(&frame.udp_payload[numbers]);
        }
        assert_eq!(ours, frame.udp_payload[..frame.udp_payload.len() - ICRC_LEN]);
    });
}
