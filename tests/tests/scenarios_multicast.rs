//! Multicast: who gets a copy, when the port joins and leaves, what is refused, and what is dropped
//! why.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use urxe_stack::cq::{WcFlags, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_stack::device::{DestroyQpError, Limits, QpHandle};
use urxe_stack::port::groups::JoinError;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::wr::{PostError, RecvRequest, Sge};
use urxe_stack::srq::{SrqAttr, SrqInit};
use urxe_tests::town::{HOPS, QKEY, Town, payload, to_qp};
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

fn attach(town: &Town, at: usize, group: IpAddr) {
    let house = &town.houses[at];
    house.device.attach_mcast(house.qp, Gid::from_ip(group)).unwrap();
}

fn send(town: &Town, from: usize, group: IpAddr, message: &[u8]) {
    let ah = town.houses[from].ah(group);
    town.post_send(from, 1, to_qp(ah, Qpn::MULTICAST, QKEY), message).unwrap();
}

/// The queue pairs that took a message at device `at`, as their completions say.
fn takers(town: &Town, at: usize) -> Vec<Qpn> {
    std::iter::from_fn(|| town.houses[at].completion())
        .filter(|completion| completion.flags().contains(WcFlags::GRH))
        .inspect(|completion| assert_eq!(completion.status, WcStatus::Success))
        .map(|completion| completion.qp_num)
        .collect()
}

#[test]
fn a_message_to_a_group_reaches_all_members_behind_a_header_that_names_the_group() {
    for (mut town, group) in [(Town::new(3), group(1)), (Town::v6(3), group_v6())] {
        for at in 1..3 {
            attach(&town, at, group);
            town.post_recv(at, 7, 40 + 100);
        }
        let sender = town.houses[0].qp.qpn();
        send(&town, 0, group, b"to all");
        town.run();
        assert_eq!(town.houses[0].completion().unwrap().status, WcStatus::Success);
        for at in 1..3 {
            let (completion, bytes) = town.received(at).unwrap();
            assert_eq!((completion.wr_id, completion.byte_len), (7, 46));
            assert_eq!((completion.src_qp, completion.qp_num), (sender, town.houses[at].qp.qpn()));
            assert_eq!((completion.flags(), payload(&bytes)), (WcFlags::GRH, &b"to all"[..]));
            let last = if group.is_ipv4() { &bytes[36..40] } else { &bytes[24..40] };
            match group {
                IpAddr::V4(v4) => assert_eq!(last, v4.octets()),
                IpAddr::V6(v6) => assert_eq!(last, v6.octets()),
            }
            // An answer goes to the sender alone, from the own address.
            let back = town.houses[at].device.ah_from_wc(&completion, &bytes).unwrap();
            assert_eq!((back.dgid, back.sgid_index), (Gid::from_ip(town.houses[0].address), 0));
            assert_eq!(back.hop_limit, HOPS);
        }
    }
}

#[test]
fn on_the_wire_it_goes_to_the_groups_address_and_queue_pair_with_the_senders_hop_limit() {
    let mut town = Town::new(1);
    let house = &town.houses[0];
    let near =
        urxe_stack::qp::attr::AddressVector { hop_limit: 3, ..urxe_tests::town::address(group(1)) };
    let ah = house.device.create_ah(house.pd, &near).unwrap();
    town.post_send(0, 1, to_qp(ah, Qpn::MULTICAST, QKEY), b"x").unwrap();
    send(&town, 0, group(1), b"y");
    let runs = town.on_the_wire();
    let seen: Vec<_> = runs
        .iter()
        .map(|run| {
            (run.to, run.hop_limit, PacketView::parse(&run.bytes).unwrap().dest_qp().value())
        })
        .collect();
    // Different hop limits are different ways; without one the system chooses.
    assert_eq!(seen, [(group(1), 3, 0xff_ffff), (group(1), 0, 0xff_ffff)]);
}

#[test]
fn several_queue_pairs_of_a_device_get_a_copy_each_and_the_sender_its_own() {
    let mut town = Town::new(1);
    let second = town.houses[0].another(QpType::Ud);
    let third = town.houses[0].another(QpType::Ud);
    attach(&town, 0, group(1));
    for qp in [second, third] {
        town.houses[0].device.attach_mcast(qp, Gid::from_ip(group(1))).unwrap();
    }
    for qp in [town.houses[0].qp, second, third] {
        for wr_id in 0..4 {
            town.houses[0].post_recv(qp, town.now, wr_id, 100);
        }
    }
    for message in 0..3 {
        send(&town, 0, group(1), &[message]);
    }
    town.run();
    let mut takers = takers(&town, 0);
    takers.sort_by_key(|qpn| qpn.value());
    let mut expected: Vec<Qpn> =
        [town.houses[0].qp, second, third].iter().flat_map(|qp| [qp.qpn(); 3]).collect();
    expected.sort_by_key(|qpn| qpn.value());
    assert_eq!(takers, expected);
}

#[test]
fn each_member_has_its_own_reasons_to_drop_and_the_others_get_theirs() {
    let mut town = Town::new(2);
    let house = &town.houses[1];
    let gid = Gid::from_ip(group(1));
    let (wrong_key, dry, short, idle) = (
        house.another(QpType::Ud),
        house.another(QpType::Ud),
        house.another(QpType::Ud),
        house.another(QpType::Ud),
    );
    for qp in [wrong_key, dry, short, idle, house.qp] {
        house.device.attach_mcast(qp, gid).unwrap();
    }
    house.post_recv(short, town.now, 1, 44);
    for qp in [wrong_key, idle, house.qp] {
        house.post_recv(qp, town.now, 2, 100);
    }
    let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    house.device.modify_qp(town.now, idle, &reset, QpAttrMask::STATE).unwrap();
    let other_key = QpAttr { qkey: QKey(QKEY.value() ^ 1), ..QpAttr::default() };
    house.device.modify_qp(town.now, wrong_key, &other_key, QpAttrMask::QKEY).unwrap();
    send(&town, 0, group(1), b"12345");
    town.run();
    assert_eq!(takers(&town, 1), [town.houses[1].qp.qpn()]);
    for counter in [
        Counter::DropWrongQkey,
        Counter::DropNoReceive,
        Counter::DropTooLong,
        Counter::DropNotReady,
    ] {
        assert_eq!(town.counter(1, counter), 1, "{}", counter.name());
    }
    assert_eq!(town.counter(1, Counter::RcvdPkts), 1, "one packet, five copies");
}

#[test]
fn members_of_a_shared_receive_queue_take_one_receive_each() {
    let mut town = Town::new(2);
    let house = &town.houses[1];
    let attr = SrqAttr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    let srq =
        house.device.create_srq(&SrqInit { pd: house.pd, attr, xrc: None, context: 0 }).unwrap();
    let members: Vec<QpHandle> = (0..3)
        .map(|_| {
            let init = QpInit {
                qp_type: QpType::Ud,
                pd: house.pd,
                send_cq: Arc::clone(&house.cq),
                recv_cq: Arc::clone(&house.cq),
                srq: Some(Arc::clone(&srq)),
                cap: QpCap { max_send_wr: 1, ..QpCap::default() },
                sq_sig_all: false,
            };
            let qp = house.device.create_qp(&init).unwrap();
            for (qp_state, mask) in [
                (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY),
                (QpState::Rtr, QpAttrMask::empty()),
            ] {
                let attr = QpAttr { qp_state, port_num: 1, qkey: QKEY, ..QpAttr::default() };
                house.device.modify_qp(town.now, qp, &attr, QpAttrMask::STATE | mask).unwrap();
            }
            house.device.attach_mcast(qp, Gid::from_ip(group(1))).unwrap();
            qp
        })
        .collect();
    // Two receives for three members.
    let sges = [Sge { addr: 0, length: 100, lkey: house.mr.lkey }];
    srq.post(&[RecvRequest { wr_id: 1, sges: &sges }, RecvRequest { wr_id: 2, sges: &sges }])
        .unwrap();
    send(&town, 0, group(1), b"shared");
    town.run();
    assert_eq!(takers(&town, 1), [members[0].qpn(), members[1].qpn()]);
    assert_eq!((town.counter(1, Counter::DropNoReceive), town.counter(1, Counter::SrqDry)), (1, 1));
}

#[test]
fn the_port_joins_for_the_first_and_leaves_after_the_last() {
    let town = Town::new(1);
    let house = &town.houses[0];
    let other = house.another(QpType::Ud);
    let gid = Gid::from_ip(group(1));
    attach(&town, 0, group(1));
    attach(&town, 0, group(1));
    house.device.attach_mcast(other, gid).unwrap();
    attach(&town, 0, group(2));
    assert_eq!(house.joined.now(), [group(1), group(2)]);
    house.device.detach_mcast(house.qp, gid).unwrap();
    assert_eq!(house.joined.now(), [group(1), group(2)], "one member is left");
    assert_eq!(
        house.device.detach_mcast(house.qp, gid),
        Err(DetachMcastError::NotAttached { qpn: house.qp.qpn(), given: gid }),
        "once is enough, however often it was attached"
    );
    house.device.detach_mcast(other, gid).unwrap();
    assert_eq!(house.joined.now(), [group(2)]);
    assert_eq!(house.device.mcast_groups(), [(group(2), 1)]);
}

#[test]
fn a_queue_pair_that_is_attached_is_busy_and_one_that_is_forgotten_leaves() {
    let town = Town::new(1);
    let house = &town.houses[0];
    attach(&town, 0, group(1));
    attach(&town, 0, group(2));
    let error = house.device.destroy_qp(town.now, house.qp).unwrap_err();
    assert_eq!((error, error.errno()), (DestroyQpError::Attached { groups: 2 }, EBUSY));
    house.device.detach_mcast(house.qp, Gid::from_ip(group(1))).unwrap();
    let error = house.device.destroy_qp(town.now, house.qp).unwrap_err();
    assert_eq!(error, DestroyQpError::Attached { groups: 1 });
    assert_eq!(house.device.forget_qp(town.now, house.qp), Ok(()));
    assert!(house.joined.now().is_empty());
    let after = house.device.detach_mcast(house.qp, Gid::from_ip(group(2)));
    assert_eq!(after.unwrap_err().errno(), EINVAL);
    let after = house.device.attach_mcast(house.qp, Gid::from_ip(group(2)));
    assert_eq!(after, Err(AttachMcastError::NoQp));
    let other = house.another(QpType::Ud);
    house.device.attach_mcast(other, Gid::from_ip(group(1))).unwrap();
    house.device.detach_mcast(other, Gid::from_ip(group(1))).unwrap();
    assert_eq!(house.device.destroy_qp(town.now, other), Ok(()));
}

#[test]
fn what_is_no_group_or_no_datagram_queue_pair_is_refused() {
    let town = Town::new(1);
    let house = &town.houses[0];
    for (not_a_group, text) in [
        ("10.0.0.1", "0000:0000:0000:0000:0000:ffff:0a00:0001 is no multicast group"),
        ("fe80::1", "is no multicast group"),
        ("::", "is no multicast group"),
    ] {
        let error = house.device.attach_mcast(house.qp, not_a_group.parse().unwrap()).unwrap_err();
        assert_eq!(error.errno(), EINVAL);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(
            house.device.detach_mcast(house.qp, not_a_group.parse().unwrap()).unwrap_err().errno(),
            EINVAL
        );
    }
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Gsi] {
        let (send_cq, recv_cq) = (Arc::clone(&house.cq), Arc::clone(&house.cq));
        let cap = QpCap::default();
        let init =
            QpInit { qp_type, pd: house.pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: false };
        let qp = house.device.create_qp(&init).unwrap();
        let error = house.device.attach_mcast(qp, Gid::from_ip(group(1))).unwrap_err();
        assert_eq!(
            (error, error.errno()),
            (AttachMcastError::NotDatagram { given: qp_type }, EINVAL)
        );
    }
    assert!(house.joined.now().is_empty());
}

#[test]
fn limits_hold_and_free_again() {
    let limits = Limits {
        max_mcast_grp: 2,
        max_mcast_qp_attach: 2,
        max_total_mcast_qp_attach: 3,
        ..Limits::default()
    };
    let town = Town::with([IpAddr::from([10, 0, 0, 1])].into_iter(), limits);
    let house = &town.houses[0];
    let qps = [house.qp, house.another(QpType::Ud), house.another(QpType::Ud)];
    let attach = |qp: usize, last| house.device.attach_mcast(qps[qp], Gid::from_ip(group(last)));
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
    assert_eq!(house.joined.now(), [group(1), group(2)]);
    house.device.detach_mcast(qps[0], Gid::from_ip(group(2))).unwrap();
    attach(2, 3).expect("a group and an attachment are free");
    house.device.forget_qp(town.now, qps[1]).unwrap();
    attach(2, 1).expect("so are those of a queue pair that went");
}

#[test]
fn a_group_that_the_port_cannot_join_is_attached_to_nobody() {
    let mut town = Town::new(1);
    town.houses[0].joined.refuses.store(true, Ordering::Relaxed);
    let house = &town.houses[0];
    let error = house.device.attach_mcast(house.qp, Gid::from_ip(group(1))).unwrap_err();
    assert_eq!(error, AttachMcastError::Join(JoinError::AddressInUse { group: group(1) }));
    assert_eq!(error.errno(), EADDRINUSE);
    assert!(house.device.mcast_groups().is_empty());
    town.post_recv(0, 1, 100);
    send(&town, 0, group(1), b"x");
    town.run();
    assert_eq!(town.counter(0, Counter::DropNoGroup), 1);
    town.houses[0].joined.refuses.store(false, Ordering::Relaxed);
    attach(&town, 0, group(1));
}

#[test]
fn a_multicast_to_nobody_is_counted_and_answered_by_nobody() {
    let mut town = Town::new(2);
    town.post_recv(1, 1, 100);
    attach(&town, 1, group(2));
    send(&town, 0, group(1), b"hello?");
    for run in town.on_the_wire() {
        town.deliver(&run);
    }
    assert!(town.on_the_wire().is_empty(), "no NAK");
    assert_eq!(takers(&town, 1), []);
    assert_eq!(town.counter(1, Counter::DropNoGroup), 1);
    // Detached, it is nobody again.
    attach(&town, 1, group(1));
    let house = &town.houses[1];
    house.device.detach_mcast(house.qp, Gid::from_ip(group(1))).unwrap();
    send(&town, 0, group(1), b"hello?");
    town.run();
    assert_eq!(town.counter(1, Counter::DropNoGroup), 2);
    assert_eq!(takers(&town, 1), []);
}

#[test]
fn a_groups_number_and_a_groups_address_go_together() {
    let mut town = Town::new(2);
    let (to_host, to_group) =
        (town.houses[0].ah(town.houses[1].address), town.houses[0].ah(group(1)));
    let given = town.houses[1].qp.qpn();
    let refused = town.post_send(0, 1, to_qp(to_group, given, QKEY), b"x");
    assert_eq!(refused, Err(PostError::GroupNumber { given, to: group(1) }));
    let refused = town.post_send(0, 1, to_qp(to_host, Qpn::MULTICAST, QKEY), b"x");
    assert_eq!(
        refused,
        Err(PostError::GroupNumber { given: Qpn::MULTICAST, to: town.houses[1].address })
    );
    assert_eq!(refused.unwrap_err().errno(), EINVAL);
    // What a stranger sends so is dropped.
    attach(&town, 1, group(1));
    town.post_recv(1, 1, 100);
    for (to, qpn) in [(group(1), given), (town.houses[1].address, Qpn::MULTICAST)] {
        let ah = town.houses[0].ah(town.houses[1].address);
        town.post_send(0, 1, to_qp(ah, given, QKEY), b"x").unwrap();
        let [mut run] = <[_; 1]>::try_from(town.on_the_wire()).unwrap();
        run.to = to;
        run.bytes[5..8].copy_from_slice(&qpn.value().to_be_bytes()[1..]);
        let end = run.bytes.len() - 4;
        let seed = urxe_wire::IcrcSeed::new(run.from, run.from_port, run.to, urxe_wire::ROCE_PORT)
            .unwrap();
        seed.append(0, &mut run.bytes, end).unwrap();
        town.deliver(&run);
    }
    assert_eq!(town.counter(1, Counter::DropGroupMismatch), 2);
    assert_eq!(takers(&town, 1), []);
}
