//! Datagrams: senders, replies, the header in front of a message, and the reasons of drops.

use urxe_stack::cq::{Completion, WcFlags, WcOpcode, WcStatus};
use urxe_stack::device::ah::{AhFromWcError, CreateAhError, DestroyAhError};
use urxe_stack::device::counters::Counter;
use urxe_stack::device::{AddressError, CreateQpError};
use urxe_stack::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::work_request::{
    Destination, PostError, Remote, SendFlags, SendOp, SendRequest,
};
use urxe_stack::time::Time;
use urxe_test_support::net::{DatagramNet, HOP_LIMIT, MEMORY, QKEY, another, payload, to_qp};
use urxe_test_support::qp::{address_vector as address, init, request};
use urxe_wire::{Deth, Ext, Gid, Opcode, QKey, Qpn};

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EBUSY: i32 = 16;

use WcStatus::{LocProtErr, LocQpOpErr, Success, WrFlushErr};

fn outcome(completion: Option<Completion>) -> Option<(u64, WcStatus)> {
    completion.map(|completion| (completion.wr_id, completion.status))
}

/// IBTA 11.4.1.2 and A17.4.5.2.
#[test]
fn a_datagram_arrives_behind_forty_bytes_that_say_from_where() {
    for (net, version) in [(DatagramNet::new(2), 4), (DatagramNet::v6(2), 6)] {
        let sender = net.hosts[0].qp.qpn();
        net.post_recv(1, 7, 40 + 100);
        net.send(0, 1, b"hello");
        net.run();
        assert_eq!(outcome(net.hosts[0].completion()), Some((1, Success)));
        let (completion, bytes) = net.received(1).unwrap();
        assert_eq!(outcome(Some(completion)), Some((7, Success)));
        assert_eq!(completion.opcode, WcOpcode::Recv);
        assert_eq!((completion.byte_len, completion.flags()), (45, WcFlags::GRH));
        assert_eq!((completion.src_qp, completion.qp_num), (sender, net.hosts[1].qp.qpn()));
        assert_eq!(payload(&bytes), b"hello");
        let (first, ip) = if version == 4 { (20, &bytes[20..40]) } else { (0, &bytes[..40]) };
        assert_eq!(bytes[..first], [0; 20][..first]);
        assert_eq!(ip[0] >> 4, version);
        let packet_type = if version == 4 { 0b1010 } else { 0b1001 };
        assert_eq!(completion.sl, packet_type, "as NVIDIA's devices report it");
        let back = net.hosts[1].device.ah_from_wc(&completion, &bytes).unwrap();
        assert_eq!(back.dgid, Gid::from_ip(net.hosts[0].address));
        assert_eq!((back.hop_limit, back.is_global), (HOP_LIMIT, true));
        assert_eq!((back.port_num, back.sgid_index), (1, 0));
        // The reply goes to the address of these attributes.
        net.post_recv(0, 8, 200);
        let ah = net.hosts[1].device.create_ah(net.hosts[1].pd, &back).unwrap();
        net.post_send(1, 9, to_qp(ah, completion.src_qp, QKEY), b"world").unwrap();
        net.run();
        assert_eq!(payload(&net.received(0).unwrap().1), b"world");
    }
}

/// IBTA 9.8.3.1.
#[test]
fn the_wire_carries_deth_with_the_sender_and_no_request_for_an_answer() {
    let net = DatagramNet::new(2);
    let (own, peer) = (net.hosts[0].qp.qpn(), net.hosts[1].qp.qpn());
    let ah = net.hosts[0].ah(net.hosts[1].address);
    net.post_send_op(0, 1, to_qp(ah, peer, QKEY), SendOp::SendImm { imm: 0xdead }, b"abc").unwrap();
    net.send(0, 1, b"");
    let runs = net.on_the_wire();
    let packets: Vec<_> = runs.iter().flat_map(|run| run.packets()).collect();
    let [first, second] = packets[..] else { panic!("{packets:?}") };
    assert_eq!((first.opcode(), first.psn().value()), (Opcode::UdSendOnlyImm, 0xff_ffff));
    assert_eq!(first.dest_qp(), peer);
    assert_eq!(first.deth(), Some(Deth { qkey: QKEY, src_qp: own }));
    assert_eq!((first.imm().unwrap().data, first.payload()), (0xdead, &b"abc"[..]));
    assert!(!first.ack_req());
    assert_eq!((second.opcode(), second.psn().value()), (Opcode::UdSendOnly, 0));
    assert_eq!(second.to_repr().ext, Ext::Deth(Deth { qkey: QKEY, src_qp: own }));
    net.post_recv(1, 1, 100);
    net.deliver(&runs[0]);
    assert_eq!(net.received(1).unwrap().0.imm_data(), Some(0xdead));
}

#[test]
fn one_queue_pair_reaches_many_peers_in_order() {
    let net = DatagramNet::new(5);
    for at in 1..5 {
        for wr_id in 0..8 {
            net.post_recv(at, wr_id, 100);
        }
    }
    let handles: Vec<_> = (1..5).map(|at| net.hosts[0].ah(net.hosts[at].address)).collect();
    for round in 0..8_u8 {
        for at in 1..5 {
            let to = to_qp(handles[at - 1], net.hosts[at].qp.qpn(), QKEY);
            net.post_send(0, u64::from(round) * 4 + at as u64, to, &[round, at as u8]).unwrap();
        }
    }
    net.run();
    for wr_id in 1..=32 {
        assert_eq!(outcome(net.hosts[0].completion()), Some((wr_id, Success)));
    }
    for at in 1..5 {
        let received =
            std::iter::from_fn(|| net.received(at)).map(|(completion, _)| completion.wr_id);
        assert_eq!(received.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn a_message_to_the_own_device_comes_back() {
    let net = DatagramNet::new(1);
    net.post_recv(0, 5, 100);
    net.send(0, 0, b"me");
    net.run();
    assert_eq!(outcome(net.hosts[0].completion()), Some((1, Success)));
    let (completion, bytes) = net.received(0).unwrap();
    assert_eq!((completion.wr_id, payload(&bytes)), (5, &b"me"[..]));
}

/// IBTA 9.6.1.5.1 and 10.2.5.
#[test]
fn a_wrong_q_key_is_dropped_and_counted() {
    let net = DatagramNet::new(2);
    net.post_recv(1, 7, 100);
    let ah = net.hosts[0].ah(net.hosts[1].address);
    net.post_send(0, 1, to_qp(ah, net.hosts[1].qp.qpn(), QKey(QKEY.value() ^ 1)), b"no").unwrap();
    net.run();
    assert!(net.received(1).is_none());
    assert_eq!(net.counter(1, Counter::DropWrongQkey), 1);
    assert_eq!(net.hosts[1].device.port_violations(), (0, 1));
    // A Q_Key with the highest bit set stands for the sender's own, which is right.
    net.post_send(0, 2, net.to(0, 1, QKey(0x8000_0001)), b"yes").unwrap();
    net.run();
    assert_eq!(payload(&net.received(1).unwrap().1), b"yes");
    assert_eq!(net.counter(1, Counter::DropWrongQkey), 1);
}

/// IBTA 9.8.3.2.
#[test]
fn a_datagram_that_does_not_fit_or_finds_no_receive_is_dropped() {
    let net = DatagramNet::new(2);
    net.send(0, 1, b"no receive");
    net.run();
    assert_eq!(net.counter(1, Counter::DropNoReceive), 1);
    net.post_recv(1, 7, 40 + 4);
    net.send(0, 1, b"12345");
    net.run();
    assert_eq!(net.counter(1, Counter::DropTooLong), 1);
    net.send(0, 1, b"1234");
    net.run();
    assert_eq!(net.received(1).unwrap().0.wr_id, 7);
    assert_eq!(net.hosts[1].state(net.hosts[1].qp), QpState::Rts);
}

#[test]
fn a_message_is_at_most_the_path_mtu_and_a_datagram_only_a_send() {
    let net = DatagramNet::new(2);
    let to = net.to(0, 1, QKEY);
    assert_eq!(net.post_send(0, 1, to, &[0; 1024]), Ok(()));
    let error = net.post_send(0, 1, to, &[0; 1025]);
    assert_eq!(error, Err(PostError::TooLong { given: 1025, allowed: 1024 }));
    let write = SendOp::Write { remote: Remote::default() };
    let refused = net.post_send_op(0, 1, to, write, b"");
    assert_eq!(refused, Err(PostError::Unsupported { qp_type: QpType::Ud }));
    let refused = net.post_send(0, 1, Destination::Peer, b"");
    assert_eq!(refused, Err(PostError::Destination { qp_type: QpType::Ud }));
}

#[test]
fn a_receive_that_cannot_be_used_fails_the_queue_pair() {
    let net = DatagramNet::new(2);
    let host = &net.hosts[1];
    host.post_recv(3, &[host.sge(MEMORY as u64, 100)]);
    net.send(0, 1, b"x");
    net.run();
    assert_eq!(outcome(net.hosts[1].completion()), Some((3, LocProtErr)));
    assert_eq!(net.hosts[1].state(net.hosts[1].qp), QpState::Err);
}

#[test]
fn address_handles_are_made_asked_and_destroyed_once() {
    let net = DatagramNet::new(2);
    let host = &net.hosts[0];
    let mut attr = address(net.hosts[1].address);
    (attr.traffic_class, attr.hop_limit, attr.flow_label) = (0x28, 9, 77);
    let ah = host.device.create_ah(host.pd, &attr).unwrap();
    assert_eq!(host.device.query_ah(ah), Some(attr));
    assert_eq!(host.device.destroy_ah(ah), Ok(()));
    assert_eq!(host.device.query_ah(ah), None);
    assert_eq!(host.device.destroy_ah(ah), Err(DestroyAhError::NoAh));
    let again = host.device.create_ah(host.pd, &attr).unwrap();
    assert_ne!(again, ah, "the former handle stays invalid");
    assert_eq!(host.device.query_ah(ah), None);
    let to = to_qp(ah, net.hosts[1].qp.qpn(), QKEY);
    assert_eq!(net.post_send(0, 1, to, b"x"), Err(PostError::NoAh));
}

#[test]
fn bad_attributes_are_refused_with_a_reason() {
    let net = DatagramNet::new(1);
    let (device, pd) = (&net.hosts[0].device, net.hosts[0].pd);
    let good = address("10.0.0.9".parse().unwrap());
    let port = device.create_ah(pd, &AddressVector { port_num: 2, ..good });
    assert_eq!(port, Err(CreateAhError::Port { given: 2 }));
    let index = device.create_ah(pd, &AddressVector { sgid_index: 3, ..good });
    assert!(matches!(index, Err(CreateAhError::Address(AddressError::SgidIndex { given: 3, .. }))));
    let version = device.create_ah(pd, &address("fd00::1".parse().unwrap()));
    assert!(matches!(version, Err(CreateAhError::Address(AddressError::IpVersions { .. }))));
    let local = device.create_ah(pd, &AddressVector { is_global: false, ..good });
    for (refused, errno, text) in [
        (port, EINVAL, "port_num is 2; the device has port 1 only"),
        (index, ENODATA, "sgid_index is 3, and the port's GID table has no valid entry there"),
        (version, EINVAL, "are of different IP versions: choose another index"),
        (
            local,
            EINVAL,
            "is_global is 0: an address handle of RoCE needs a GRH with the destination in dgid",
        ),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.errno(), errno);
        assert!(error.to_string().contains(text), "{text} is not in {error}");
    }
    let other = device.alloc_pd().unwrap();
    device.dealloc_pd(other).unwrap();
    assert_eq!(device.create_ah(other, &good), Err(CreateAhError::NoPd));
    let ah = device.create_ah(device.alloc_pd().unwrap(), &good);
    assert!(ah.is_ok());
}

#[test]
fn a_protection_domain_with_an_address_handle_is_busy() {
    let net = DatagramNet::new(1);
    let device = &net.hosts[0].device;
    let pd = device.alloc_pd().unwrap();
    let ah = device.create_ah(pd, &address("10.0.0.9".parse().unwrap())).unwrap();
    assert_eq!(device.dealloc_pd(pd).unwrap_err().errno(), EBUSY);
    device.destroy_ah(ah).unwrap();
    assert!(device.dealloc_pd(pd).is_ok());
}

#[test]
fn an_address_handle_of_another_protection_domain_is_refused_and_one_of_a_parent_domain_is_not() {
    let net = DatagramNet::new(2);
    let (device, own) = (&net.hosts[0].device, net.hosts[0].pd);
    let (peer, to) = (net.hosts[1].qp.qpn(), address(net.hosts[1].address));
    let other = device.alloc_pd().unwrap();
    let parent = device.alloc_parent_domain(own, None).unwrap();
    let [foreign, ours] = [other, parent].map(|pd| device.create_ah(pd, &to).unwrap());
    let error = net.post_send(0, 1, to_qp(foreign, peer, QKEY), b"no").unwrap_err();
    assert_eq!((error, error.errno()), (PostError::AhOfOtherPd, EINVAL));
    assert!(error.to_string().contains("belongs to another protection domain"), "{error}");
    net.post_recv(1, 7, 100);
    net.post_send(0, 2, to_qp(ours, peer, QKEY), b"yes").unwrap();
    net.run();
    assert_eq!(outcome(net.hosts[0].completion()), Some((2, Success)));
    assert_eq!(payload(&net.received(1).unwrap().1), b"yes");
}

#[test]
fn a_message_whose_address_handle_is_gone_fails_and_sending_recovers() {
    let net = DatagramNet::new(3);
    let host = &net.hosts[0];
    let [lost, kept] = [1, 2].map(|at| host.ah(net.hosts[at].address));
    // The requests are posted and not yet sent when the handle is destroyed.
    for (wr_id, ah) in [(1, kept), (2, lost), (3, kept)] {
        let to = to_qp(ah, net.hosts[2].qp.qpn(), QKEY);
        let request = SendRequest { wr_id, to, ..request(SendOp::Send, &[]) };
        host.post_request(host.qp, &request).unwrap();
    }
    host.device.destroy_ah(lost).unwrap();
    net.run();
    let outcomes: Vec<_> = std::iter::from_fn(|| outcome(host.completion())).collect();
    assert_eq!(outcomes, [(1, Success), (2, LocQpOpErr), (3, WrFlushErr)]);
    assert_eq!(host.state(host.qp), QpState::Sqe);
    host.go_to(host.qp, QpState::Rts);
    net.post_recv(2, 4, 100);
    net.post_send(0, 4, to_qp(kept, net.hosts[2].qp.qpn(), QKEY), b"again").unwrap();
    net.run();
    assert_eq!(payload(&net.received(2).unwrap().1), b"again");
}

/// The first message's path closes while the queue pair is still on it.
#[test]
fn a_path_that_closes_under_a_waiting_message_leaves_nothing_behind() {
    let net = DatagramNet::new(2);
    let host = &net.hosts[0];
    let only = host.ah(net.hosts[1].address);
    let to = to_qp(only, net.hosts[1].qp.qpn(), QKEY);
    let flags = SendFlags::empty();
    let request = SendRequest { wr_id: 5, to, flags, ..request(SendOp::Send, &[]) };
    host.device.post_send(Time::ZERO, host.qp, &[request, request]).unwrap();
    host.device.destroy_ah(only).unwrap();
    assert!(net.on_the_wire().is_empty());
    assert_eq!(outcome(host.completion()), Some((5, LocQpOpErr)));
    assert_eq!(outcome(host.completion()), Some((5, WrFlushErr)));
    assert_eq!(host.state(host.qp), QpState::Sqe);
    assert!(!host.device.has_pending());
}

#[test]
fn management_datagrams_reach_queue_pair_one_with_their_own_q_key() {
    let net = DatagramNet::new(2);
    for host in &net.hosts {
        let gsi = another(host, QpType::Gsi);
        assert_eq!(gsi.qpn(), Qpn::masked(1));
        host.post_recv_on(gsi, 11, &[host.sge(0, 40 + 256)]);
    }
    let ah = net.hosts[0].ah(net.hosts[1].address);
    // The key is privileged, so an ordinary queue pair sends its own key, which is wrong here.
    net.post_send(0, 1, to_qp(ah, Qpn::masked(1), QKey::GSI), &[0; 256]).unwrap();
    net.run();
    assert_eq!(net.counter(1, Counter::DropWrongQkey), 1);
    let host = &net.hosts[0];
    // The queue pair cannot be given the key either.
    let rts = host.device.query_qp(host.qp).unwrap();
    let privileged = QpAttr { qkey: QKey::GSI, ..rts };
    let error =
        host.device.modify_qp(Time::ZERO, host.qp, &privileged, QpAttrMask::QKEY).unwrap_err();
    assert_eq!((error.errno(), host.device.query_qp(host.qp)), (EPERM, Some(rts)), "{error}");
    let gsi = host.device.gsi().unwrap();
    let to = to_qp(ah, Qpn::masked(1), QKey::GSI);
    let (flags, sges) = (SendFlags::empty(), [host.sge(0, 256)]);
    let request = SendRequest { to, flags, ..request(SendOp::Send, &sges) };
    host.post_request(gsi, &request).unwrap();
    net.run();
    let (completion, _) = net.received(1).unwrap();
    assert_eq!((completion.qp_num, completion.src_qp), (Qpn::QP1, Qpn::QP1));
    assert_eq!(completion.byte_len, 296);
}

#[test]
fn a_device_has_one_queue_pair_one_and_can_have_it_again() {
    let net = DatagramNet::new(1);
    let host = &net.hosts[0];
    let gsi = another(host, QpType::Gsi);
    let init = init(QpType::Gsi, host.pd, &host.cq);
    let error = host.device.create_qp(&init).unwrap_err();
    assert!(matches!(error, CreateQpError::GsiTaken));
    assert_eq!(error.errno(), EBUSY);
    host.device.destroy_qp(Time::ZERO, gsi).unwrap();
    assert_eq!(host.device.gsi(), None);
    let again = host.device.create_qp(&init).unwrap();
    assert_eq!(host.device.gsi(), Some(again));
}

#[test]
fn packets_to_queue_pair_zero_and_to_a_missing_gsi_are_dropped() {
    let net = DatagramNet::new(2);
    let ah = net.hosts[0].ah(net.hosts[1].address);
    for (qpn, drops) in [(0, 1), (1, 2)] {
        net.post_send(0, 1, to_qp(ah, Qpn::masked(qpn), QKEY), b"x").unwrap();
        net.run();
        let dropped = net.counter(1, Counter::DropNoQp) + net.counter(1, Counter::DropOtherProcess);
        assert_eq!(dropped, drops, "QP {qpn}");
    }
}

#[test]
fn a_completion_without_a_grh_gives_no_address() {
    let net = DatagramNet::new(1);
    let device = &net.hosts[0].device;
    let none = device.ah_from_wc(&Completion::default(), &[0; 40]);
    assert_eq!(none, Err(AhFromWcError::NoGrh));
    let with_grh = Completion::default().with_grh();
    assert!(matches!(device.ah_from_wc(&with_grh, &[0; 40]), Err(AhFromWcError::Header(_))));
    let other = DatagramNet::new(2);
    other.post_recv(1, 1, 100);
    other.send(0, 1, b"");
    other.run();
    let (completion, bytes) = other.received(1).unwrap();
    let error = device.ah_from_wc(&completion, &bytes).unwrap_err();
    assert_eq!(error, AhFromWcError::NotOurs { gid: Gid::from_ip(other.hosts[1].address) });
}
