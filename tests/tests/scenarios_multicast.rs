//! Multicast: the receivers of copies, joins and leaves of the port, refused calls, and the reasons
//! of drops.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use urxe_stack::cq::{WcFlags, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_stack::device::{DestroyQpError, Limits, QpHandle};
use urxe_stack::port::groups::JoinError;
use urxe_stack::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::work_request::{PostError, RecvRequest};
use urxe_stack::time::Time;
use urxe_test_support::net::{DatagramNet, HOP_LIMIT, PacketRun, QKEY, another, payload, to_qp};
use urxe_test_support::qp::{address_vector, init};
use urxe_wire::{Gid, PacketView, QKey, Qpn};

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EADDRINUSE: i32 = 98;

fn group(last: u8) -> IpAddr {
    IpAddr::from([239, 1, 2, last])
}

fn group_v6() -> IpAddr {
    "ff0e::7".parse().unwrap()
}

fn attach(net: &DatagramNet, at: usize, group: IpAddr) {
    let host = &net.hosts[at];
    host.device.attach_mcast(host.qp, Gid::from_ip(group)).unwrap();
}

fn send(net: &DatagramNet, from: usize, group: IpAddr, message: &[u8]) {
    let ah = net.hosts[from].ah(group);
    net.post_send(from, 1, to_qp(ah, Qpn::MULTICAST, QKEY), message).unwrap();
}

/// Returns the queue pairs that received a message at host `at`, from their completions.
fn receivers(net: &DatagramNet, at: usize) -> Vec<Qpn> {
    std::iter::from_fn(|| net.hosts[at].completion())
        .filter(|completion| completion.flags().contains(WcFlags::GRH))
        .inspect(|completion| assert_eq!(completion.status, WcStatus::Success))
        .map(|completion| completion.qp_num)
        .collect()
}

#[test]
fn a_message_to_a_group_reaches_all_members_behind_a_header_that_names_the_group() {
    for (net, group) in [(DatagramNet::new(3), group(1)), (DatagramNet::v6(3), group_v6())] {
        for at in 1..3 {
            attach(&net, at, group);
            net.post_recv(at, 7, 40 + 100);
        }
        let sender = net.hosts[0].qp.qpn();
        send(&net, 0, group, b"to all");
        net.run();
        assert_eq!(net.hosts[0].completion().unwrap().status, WcStatus::Success);
        for at in 1..3 {
            let (completion, bytes) = net.received(at).unwrap();
            assert_eq!((completion.wr_id, completion.byte_len), (7, 46));
            assert_eq!((completion.src_qp, completion.qp_num), (sender, net.hosts[at].qp.qpn()));
            assert_eq!((completion.flags(), payload(&bytes)), (WcFlags::GRH, &b"to all"[..]));
            match group {
                IpAddr::V4(v4) => assert_eq!(bytes[36..40], v4.octets()),
                IpAddr::V6(v6) => assert_eq!(bytes[24..40], v6.octets()),
            }
            // A reply goes to the sender only, from the own address.
            let back = net.hosts[at].device.ah_from_wc(&completion, &bytes).unwrap();
            assert_eq!((back.dgid, back.sgid_index), (Gid::from_ip(net.hosts[0].address), 0));
            assert_eq!(back.hop_limit, HOP_LIMIT);
        }
    }
}

#[test]
fn on_the_wire_it_goes_to_the_groups_address_and_queue_pair_with_the_senders_hop_limit() {
    let net = DatagramNet::new(1);
    let host = &net.hosts[0];
    let near = AddressVector { hop_limit: 3, ..address_vector(group(1)) };
    let ah = host.device.create_ah(host.pd, &near).unwrap();
    net.post_send(0, 1, to_qp(ah, Qpn::MULTICAST, QKEY), b"x").unwrap();
    send(&net, 0, group(1), b"y");
    let runs = net.on_the_wire();
    let qpn = |run: &PacketRun| PacketView::parse(&run.bytes).unwrap().dest_qp();
    let seen: Vec<_> = runs.iter().map(|run| (run.to, run.hop_limit, qpn(run))).collect();
    // Each hop limit has a path of its own. Without a hop limit, the system chooses.
    assert_eq!(seen, [(group(1), 3, Qpn::MULTICAST), (group(1), 0, Qpn::MULTICAST)]);
}

#[test]
fn several_queue_pairs_of_a_device_get_a_copy_each_and_the_sender_its_own() {
    let net = DatagramNet::new(1);
    let host = &net.hosts[0];
    let qps = [host.qp, another(host, QpType::Ud), another(host, QpType::Ud)];
    for qp in qps {
        host.device.attach_mcast(qp, Gid::from_ip(group(1))).unwrap();
        for wr_id in 0..4 {
            host.post_recv_on(qp, wr_id, &[host.sge(0, 100)]);
        }
    }
    for message in 0..3 {
        send(&net, 0, group(1), &[message]);
    }
    net.run();
    let mut receivers = receivers(&net, 0);
    receivers.sort_by_key(|qpn| qpn.value());
    let mut expected: Vec<Qpn> = qps.iter().flat_map(|qp| [qp.qpn(); 3]).collect();
    expected.sort_by_key(|qpn| qpn.value());
    assert_eq!(receivers, expected);
}

#[test]
fn each_member_has_its_own_reasons_to_drop_and_the_others_get_theirs() {
    let net = DatagramNet::new(2);
    let host = &net.hosts[1];
    let gid = Gid::from_ip(group(1));
    let [wrong_key, empty, short, idle] = [(); 4].map(|()| another(host, QpType::Ud));
    for qp in [wrong_key, empty, short, idle, host.qp] {
        host.device.attach_mcast(qp, gid).unwrap();
    }
    host.post_recv_on(short, 1, &[host.sge(0, 44)]);
    for qp in [wrong_key, idle, host.qp] {
        host.post_recv_on(qp, 2, &[host.sge(0, 100)]);
    }
    host.go_to(idle, QpState::Reset);
    let other_key = QpAttr { qkey: QKey(QKEY.value() ^ 1), ..QpAttr::default() };
    host.modify(wrong_key, &other_key, QpAttrMask::QKEY);
    send(&net, 0, group(1), b"12345");
    net.run();
    assert_eq!(receivers(&net, 1), [net.hosts[1].qp.qpn()]);
    use Counter::{DropNoReceive, DropNotReady, DropTooLong, DropWrongQkey};
    for counter in [DropWrongQkey, DropNoReceive, DropTooLong, DropNotReady] {
        assert_eq!(net.counter(1, counter), 1, "{}", counter.name());
    }
    assert_eq!(net.counter(1, Counter::RcvdPkts), 1, "one packet, five copies");
}

#[test]
fn members_of_a_shared_receive_queue_take_one_receive_each() {
    let net = DatagramNet::new(2);
    let host = &net.hosts[1];
    let srq = host.create_srq(host.pd, 8, None);
    let members: Vec<QpHandle> = (0..3)
        .map(|_| {
            let qp = host.create_qp_on(&srq);
            let attr = QpAttr { port_num: 1, qkey: QKEY, ..QpAttr::default() };
            host.bring_up((qp, QpType::Ud), &attr, QpState::Rtr);
            host.device.attach_mcast(qp, Gid::from_ip(group(1))).unwrap();
            qp
        })
        .collect();
    // Two receives for three members.
    let sges = [host.sge(0, 100)];
    srq.post(&[RecvRequest { wr_id: 1, sges: &sges }, RecvRequest { wr_id: 2, sges: &sges }])
        .unwrap();
    send(&net, 0, group(1), b"shared");
    net.run();
    assert_eq!(receivers(&net, 1), [members[0].qpn(), members[1].qpn()]);
    assert_eq!((net.counter(1, Counter::DropNoReceive), net.counter(1, Counter::SrqEmpty)), (1, 1));
}

#[test]
fn the_port_joins_for_the_first_and_leaves_after_the_last() {
    let net = DatagramNet::new(1);
    let host = &net.hosts[0];
    let other = another(host, QpType::Ud);
    let gid = Gid::from_ip(group(1));
    attach(&net, 0, group(1));
    attach(&net, 0, group(1));
    host.device.attach_mcast(other, gid).unwrap();
    attach(&net, 0, group(2));
    assert_eq!(host.joined.now(), [group(1), group(2)]);
    host.device.detach_mcast(host.qp, gid).unwrap();
    assert_eq!(host.joined.now(), [group(1), group(2)], "one member is left");
    assert_eq!(
        host.device.detach_mcast(host.qp, gid),
        Err(DetachMcastError::NotAttached { qpn: host.qp.qpn(), given: gid }),
        "once is enough, however often it was attached"
    );
    host.device.detach_mcast(other, gid).unwrap();
    assert_eq!(host.joined.now(), [group(2)]);
    assert_eq!(host.device.mcast_groups(), [(group(2), 1)]);
}

#[test]
fn an_attached_queue_pair_is_busy_and_leaves_when_destroyed_without_wait() {
    let net = DatagramNet::new(1);
    let host = &net.hosts[0];
    attach(&net, 0, group(1));
    attach(&net, 0, group(2));
    let error = host.device.destroy_qp(Time::ZERO, host.qp).unwrap_err();
    assert_eq!((error, error.errno()), (DestroyQpError::Attached { groups: 2 }, EBUSY));
    host.device.detach_mcast(host.qp, Gid::from_ip(group(1))).unwrap();
    let error = host.device.destroy_qp(Time::ZERO, host.qp).unwrap_err();
    assert_eq!(error, DestroyQpError::Attached { groups: 1 });
    assert_eq!(host.device.destroy_qp_without_wait(Time::ZERO, host.qp), Ok(()));
    assert!(host.joined.now().is_empty());
    let after = host.device.detach_mcast(host.qp, Gid::from_ip(group(2)));
    assert_eq!(after.unwrap_err().errno(), EINVAL);
    let after = host.device.attach_mcast(host.qp, Gid::from_ip(group(2)));
    assert_eq!(after, Err(AttachMcastError::NoQp));
    let other = another(host, QpType::Ud);
    host.device.attach_mcast(other, Gid::from_ip(group(1))).unwrap();
    host.device.detach_mcast(other, Gid::from_ip(group(1))).unwrap();
    assert_eq!(host.device.destroy_qp(Time::ZERO, other), Ok(()));
}

#[test]
fn addresses_without_a_group_and_other_services_are_refused() {
    let net = DatagramNet::new(1);
    let host = &net.hosts[0];
    for (not_a_group, text) in [
        ("10.0.0.1", "0000:0000:0000:0000:0000:ffff:0a00:0001 is not a multicast group"),
        ("fe80::1", "is not a multicast group"),
        ("::", "is not a multicast group"),
    ] {
        let gid: Gid = not_a_group.parse().unwrap();
        let error = host.device.attach_mcast(host.qp, gid).unwrap_err();
        assert_eq!(error.errno(), EINVAL);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(host.device.detach_mcast(host.qp, gid).unwrap_err().errno(), EINVAL);
    }
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Gsi] {
        let qp = host.create(&init(qp_type, host.pd, &host.cq));
        let error = host.device.attach_mcast(qp, Gid::from_ip(group(1))).unwrap_err();
        assert_eq!(error, AttachMcastError::NotDatagram { given: qp_type });
        assert_eq!(error.errno(), EINVAL);
    }
    assert!(host.joined.now().is_empty());
}

#[test]
fn limits_hold_and_free_again() {
    let limits = Limits {
        max_mcast_grp: 2,
        max_mcast_qp_attach: 2,
        max_total_mcast_qp_attach: 3,
        ..Limits::default()
    };
    let net = DatagramNet::with([IpAddr::from([10, 0, 0, 1])].into_iter(), limits);
    let host = &net.hosts[0];
    let qps = [host.qp, another(host, QpType::Ud), another(host, QpType::Ud)];
    let attach = |qp: usize, last| host.device.attach_mcast(qps[qp], Gid::from_ip(group(last)));
    let refused = |result: Result<(), AttachMcastError>| {
        let error = result.unwrap_err();
        assert_eq!(error.errno(), ENOMEM, "{error}");
        error
    };
    attach(0, 1).unwrap();
    attach(1, 1).unwrap();
    assert_eq!(refused(attach(2, 1)), AttachMcastError::GroupFull { group: group(1), allowed: 2 });
    attach(1, 1).expect("attached already, which takes no place");
    attach(0, 2).unwrap();
    assert_eq!(refused(attach(1, 2)), AttachMcastError::NoneLeft { allowed: 3 });
    assert_eq!(refused(attach(0, 3)), AttachMcastError::NoGroupLeft { allowed: 2 });
    assert_eq!(host.joined.now(), [group(1), group(2)]);
    host.device.detach_mcast(qps[0], Gid::from_ip(group(2))).unwrap();
    attach(2, 3).expect("a group and an attachment are free");
    host.device.destroy_qp_without_wait(Time::ZERO, qps[1]).unwrap();
    attach(2, 1).expect("so are those of a queue pair that went");
}

#[test]
fn a_group_that_the_port_cannot_join_has_no_members() {
    let net = DatagramNet::new(1);
    net.hosts[0].joined.refuses.store(true, Ordering::Relaxed);
    let host = &net.hosts[0];
    let error = host.device.attach_mcast(host.qp, Gid::from_ip(group(1))).unwrap_err();
    assert_eq!(error, AttachMcastError::Join(JoinError::AddressInUse { group: group(1) }));
    assert_eq!(error.errno(), EADDRINUSE);
    assert!(host.device.mcast_groups().is_empty());
    net.post_recv(0, 1, 100);
    send(&net, 0, group(1), b"x");
    net.run();
    assert_eq!(net.counter(0, Counter::DropNoGroup), 1);
    net.hosts[0].joined.refuses.store(false, Ordering::Relaxed);
    attach(&net, 0, group(1));
}

#[test]
fn a_multicast_without_members_is_counted_and_not_answered() {
    let net = DatagramNet::new(2);
    net.post_recv(1, 1, 100);
    attach(&net, 1, group(2));
    send(&net, 0, group(1), b"hello?");
    for run in net.on_the_wire() {
        net.deliver(&run);
    }
    assert!(net.on_the_wire().is_empty(), "no NAK");
    assert_eq!(receivers(&net, 1), []);
    assert_eq!(net.counter(1, Counter::DropNoGroup), 1);
    // After the detachment, the group has no members again.
    attach(&net, 1, group(1));
    let host = &net.hosts[1];
    host.device.detach_mcast(host.qp, Gid::from_ip(group(1))).unwrap();
    send(&net, 0, group(1), b"hello?");
    net.run();
    assert_eq!(net.counter(1, Counter::DropNoGroup), 2);
    assert_eq!(receivers(&net, 1), []);
}

#[test]
fn a_groups_number_and_a_groups_address_go_together() {
    let net = DatagramNet::new(2);
    let (to_host, to_group) = (net.hosts[0].ah(net.hosts[1].address), net.hosts[0].ah(group(1)));
    let given = net.hosts[1].qp.qpn();
    let refused = net.post_send(0, 1, to_qp(to_group, given, QKEY), b"x");
    assert_eq!(refused, Err(PostError::GroupNumber { given, to: group(1) }));
    let refused = net.post_send(0, 1, to_qp(to_host, Qpn::MULTICAST, QKEY), b"x");
    assert_eq!(
        refused,
        Err(PostError::GroupNumber { given: Qpn::MULTICAST, to: net.hosts[1].address })
    );
    assert_eq!(refused.unwrap_err().errno(), EINVAL);
    // Such packets of another implementation are dropped.
    attach(&net, 1, group(1));
    net.post_recv(1, 1, 100);
    for (to, qpn) in [(group(1), given), (net.hosts[1].address, Qpn::MULTICAST)] {
        net.send(0, 1, b"x");
        let [mut run] = <[_; 1]>::try_from(net.on_the_wire()).unwrap();
        run.to = to;
        run.readdress(qpn);
        net.deliver(&run);
    }
    assert_eq!(net.counter(1, Counter::DropGroupMismatch), 2);
    assert_eq!(receivers(&net, 1), []);
}
