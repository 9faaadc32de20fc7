//! Several engines on one address: traffic between them, MADs, and packets for no process.

use urxe_test_support::packet::{PACKET, Packet, part};
use urxe_test_support::qp::datagram_attributes;
use urxe_wire::mad::{Attribute, CM_CLASS, CommId, MAD_LEN};
use urxe_wire::{Deth, Ext, Opcode, QKey};

use super::*;
use crate::device::qpn::process_slot;

/// Sends a packet to a queue pair of `to` from another address.
fn send_packet(from: &UdpPort, to: IpAddr, opcode: Opcode, ext: Ext, qpn: u32, payload: &[u8]) {
    let payload = payload.to_vec();
    let packet = Packet { opcode, psn: 1, ack_req: true, ext, payload, ..PACKET };
    let run = Packet::merge(from.address(), to, [(Qpn::masked(qpn), packet)]);
    assert_eq!(from.transmit(&run.run()), crate::port::SendOutcome::Sent);
}

fn send_mad(from: &UdpPort, to: IpAddr, mad: &[u8]) {
    let ext = Ext::Deth(Deth { qkey: QKey(0x8001_0000), src_qp: Qpn::QP1 });
    send_packet(from, to, Opcode::UdSendOnly, ext, 1, mad);
}

/// Returns a message of the connection manager, with one byte to identify it.
fn cm(attribute: Attribute, receiver: CommId, service_id: u64, mark: u8) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, CM_CLASS, 2, 3]);
    mad[16..18].copy_from_slice(&attribute.id().to_be_bytes());
    mad[24..28].copy_from_slice(&0x55_u32.to_be_bytes());
    mad[28..32].copy_from_slice(&receiver.0.to_be_bytes());
    if matches!(attribute, Attribute::Req | Attribute::SidrReq) {
        mad[32..40].copy_from_slice(&service_id.to_be_bytes());
    }
    mad[255] = mark;
    mad
}

fn total(ends: &[End], counter: Counter) -> u64 {
    ends.iter().map(|end| end.counter(counter)).sum()
}

/// Opens `count` engines on one address of `net`, and a port on another.
fn sharing(net: u8, count: usize) -> (IpAddr, Vec<End>, UdpPort) {
    let ends = (0..count).map(|_| End::new(address(net, 1), over_sockets())).collect();
    let outside = UdpPort::open(UdpConfig::new(address(net, 2).into())).unwrap();
    (address(net, 1).into(), ends, outside)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn marks(end: &End) -> Vec<u8> {
    std::iter::from_fn(|| end.engine.take_mad()).map(|received| received.mad[255]).collect()
}

#[test]
fn engines_on_one_address_talk_and_no_packet_goes_astray() {
    let (at, ends, _) = sharing(6, 4);
    for (end, slot) in ends.iter().zip(0..) {
        assert_eq!((end.engine.process_slot(), process_slot(end.qp.qpn())), (slot, slot));
    }
    // 0 with 3, and 1 with 2.
    for (end, peer) in ends.iter().zip([3, 2, 1, 0]) {
        end.connect(ends[peer].qp.qpn(), at);
    }
    let data = pattern(1 << 20, 5);
    for _ in 0..3 {
        for (from, to) in [(0, 3), (2, 1), (3, 0), (1, 2)] {
            ends[from].fill(&data);
            ends[to].fill(&vec![0; data.len()]);
            ends[to].recv(data.len() as u32);
            ends[from].post(SendOp::Send, data.len() as u32);
            let _ = ends[from].poll_one();
            let _ = ends[to].poll_one();
            ends[to].holds(&data, "SEND");
        }
    }
    for counter in [Counter::Forwarded, Counter::DropOtherProcess, Counter::DropNoQp] {
        assert_eq!(total(&ends, counter), 0, "{}", counter.name());
    }
}

#[test]
fn management_datagrams_reach_the_process_that_they_are_for() {
    let (at, ends, outside) = sharing(7, 3);
    let service = |port: u64| 0x0106_0000 + port;
    ends[1].engine.listen(service(1)).unwrap();
    ends[2].engine.listen(service(2)).unwrap();
    let taken = ends[0].engine.listen(service(2)).unwrap_err();
    assert_eq!(taken.errno(), libc::EADDRINUSE);
    assert_eq!(ends[2].engine.listen(service(2)).unwrap_err().errno(), libc::EADDRINUSE);

    send_mad(&outside, at, &cm(Attribute::Req, CommId::NONE, service(1), 1));
    send_mad(&outside, at, &cm(Attribute::SidrReq, CommId::NONE, service(2), 2));
    for (attribute, slot, mark) in
        [(Attribute::Rep, 0, 3), (Attribute::Rtu, 1, 4), (Attribute::Dreq, 2, 5)]
    {
        send_mad(&outside, at, &cm(attribute, CommId::with_slot(slot, 99), 0, mark));
    }
    let mut got = [const { Vec::new() }; 3];
    wait_until("five datagrams arrive", || {
        for (got, end) in got.iter_mut().zip(&ends) {
            got.extend(marks(end));
            got.sort_unstable();
        }
        got.iter().map(Vec::len).sum::<usize>() == 5
    });
    assert_eq!(got, [vec![3], vec![1, 4], vec![2, 5]]);

    // A service without listener any more, one that never had a listener, and an invalid MAD.
    assert!(ends[1].engine.unlisten(service(1)));
    send_mad(&outside, at, &cm(Attribute::Req, CommId::NONE, service(1), 6));
    send_mad(&outside, at, &cm(Attribute::Req, CommId::NONE, service(77), 7));
    wait_until("both are dropped", || total(&ends, Counter::DropNoListener) == 2);
    let mut wrong = cm(Attribute::Rep, CommId::with_slot(1, 1), 0, 8);
    wrong[0] = 9;
    send_mad(&outside, at, &wrong);
    wait_until("it is dropped", || total(&ends, Counter::DropBadMad) == 1);
    assert!(ends.iter().all(|end| marks(end).is_empty()));
}

/// A program binds a port and listens right after. Its client may know the port in between: qperf
/// 0.4.11 sends the port before its server listens.
#[test]
fn a_request_for_a_bound_port_waits_until_the_program_listens() {
    let (at, ends, outside) = sharing(31, 2);
    let service = 0x0106_0009;
    let ports = &ends[1].engine.shared.ports;
    ports.listen_at(None, service).unwrap();
    wait_until("a request waits", || {
        send_mad(&outside, at, &cm(Attribute::Req, CommId::NONE, service, 1));
        !ports.deferred.is_empty()
    });
    ports.begin_listening(None, service);
    wait_until("the requests arrive", || marks(&ends[1]).contains(&1));
}

/// The sender of a rejection that precedes any reply knows only its own identifier.
#[test]
fn a_refusal_without_a_receiver_reaches_every_device_of_the_address() {
    let (at, ends, outside) = sharing(12, 3);
    send_mad(&outside, at, &cm(Attribute::Rej, CommId::NONE, 0, 21));
    for end in &ends {
        wait_until("each gets it", || marks(end) == [21]);
    }
}

/// Creates a queue pair 1 of this process, with room for some MADs.
fn management_qp(end: &End, pd: PdId) -> QpHandle {
    let init = QpInit { sq_sig_all: true, ..qp::init(QpType::Gsi, pd, &end.cq) };
    let qp = end.engine.device().create_qp(&init).unwrap();
    let attr = datagram_attributes(QKey(0x8001_0000));
    let modify = |attr: &QpAttr, mask| end.engine.modify_qp(qp, attr, mask);
    bring_up_by(QpType::Gsi, &attr, QpState::Rtr, modify).unwrap();
    qp
}

#[test]
fn a_queue_pair_1_gets_the_datagrams_of_its_own_process_only() {
    let (at, ends, outside) = sharing(10, 3);
    let own = &ends[1];
    let pd = own.engine.device().alloc_pd().unwrap();
    let mr = register(own.engine.device(), pd, &own.buffer);
    let qp = management_qp(own, pd);
    for place in 0..4 {
        let sges = [Sge { addr: mr.iova + 512 * place, length: 512, lkey: mr.lkey }];
        own.engine.post_recv(qp, &[RecvRequest { wr_id: place, sges: &sges }]).unwrap();
    }
    own.engine.listen(0x0106_0001).unwrap();
    for (slot, mark) in [(1, 11), (0, 12), (2, 13), (1, 14)] {
        send_mad(&outside, at, &cm(Attribute::Rtu, CommId::with_slot(slot, 5), 0, mark));
    }
    send_mad(&outside, at, &cm(Attribute::Req, CommId::NONE, 0x0106_0001, 15));
    let mut got = Vec::new();
    for _ in 0..3 {
        let completion = own.poll_one();
        assert_eq!((completion.qp_num, completion.byte_len), (Qpn::QP1, 40 + MAD_LEN as u32));
        let mut mark = [0];
        own.buffer.read(512 * completion.wr_id as usize + 40 + 255, &mut mark).unwrap();
        got.push(mark[0]);
    }
    got.sort_unstable();
    assert_eq!(got, [11, 14, 15]);
    wait_until("the others have theirs", || !ends[0].engine.shared.ports.inbox.is_empty());
    assert_eq!([0, 1].map(|end| marks(&ends[end])), [vec![12], vec![]]);
    wait_until("the others have theirs", || !ends[2].engine.shared.ports.inbox.is_empty());
    assert_eq!(marks(&ends[2]), [13]);
    // Each packet was received once. Any process may have read the request from the common socket.
    let outside = total(&ends, Counter::RcvdPkts) - total(&ends, Counter::RcvdForwarded);
    assert_eq!((outside, total(&ends, Counter::DropNoQp)), (5, 0));
}

/// The destination number would name slot 63, but belongs to no process: packets to a group arrive
/// at the group's address.
#[test]
fn a_packet_to_a_group_is_no_packet_for_another_process() {
    let (at, ends, outside) = sharing(11, 2);
    let ext = Ext::Deth(Deth { qkey: QKey(1), src_qp: Qpn::masked(2) });
    for _ in 0..4 {
        send_packet(&outside, at, Opcode::UdSendOnly, ext, Qpn::MULTICAST.value(), b"to a group");
    }
    wait_until("four are dropped", || total(&ends, Counter::DropGroupMismatch) == 4);
    assert_eq!((total(&ends, Counter::Forwarded), total(&ends, Counter::DropOtherProcess)), (0, 0));
}

#[test]
fn a_packet_for_a_free_slot_is_dropped_without_a_reply() {
    let (at, ends, outside) = sharing(8, 2);
    for n in 0..10 {
        send_packet(&outside, at, Opcode::RcSendOnly, Ext::None, 50 << 18 | n, b"to no process");
    }
    wait_until("ten are dropped", || total(&ends, Counter::DropOtherProcess) == 10);
    assert_eq!((total(&ends, Counter::Forwarded), total(&ends, Counter::SentPkts)), (0, 0));
    let mut buffers = crate::port::udp::ReceiveBuffers::new(1).unwrap();
    assert_eq!(outside.receive(&mut buffers).unwrap(), 0, "an answer came");
}

/// If a sender uses one source port for all, the receiving kernel merges packets for different
/// processes and gives them all to the process of the first one.
#[test]
fn merged_packets_for_two_processes_reach_both() {
    let (at, ends, outside) = sharing(9, 2);
    // The slots alternate, so half of the packets are in the wrong process whichever comes first.
    // The queue pairs do not exist.
    let packets = (0..8_u32)
        .map(|index| (Qpn::masked((index % 2) << 18 | 5), part(Opcode::RcSendOnly, 1, &[0; 16])));
    let run = Packet::merge(outside.address(), at, packets);
    assert_eq!(outside.transmit(&run.run()), crate::port::SendOutcome::Sent);
    wait_until("each gets its four", || ends.iter().all(|end| end.counter(Counter::DropNoQp) == 4));
    // The sender counts the packets after the other process has them.
    wait_until("four are forwarded", || total(&ends, Counter::Forwarded) == 4);
    let counts = [Counter::RcvdForwarded, Counter::DropOtherProcess];
    assert_eq!(counts.map(|counter| total(&ends, counter)), [4, 0]);
}
