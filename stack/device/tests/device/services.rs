//! The halves of the services: dropped work at RESET, flushed work in ERR, and absent halves.

use urxe_device::cq::{AsyncEvent, QpEventType};
use urxe_device::qp::work_request::PostError;
use urxe_test_support::host::run_all;
use urxe_test_support::lab::no_lkey;
use urxe_test_support::net::QKEY;
use urxe_test_support::packet::ack;
use urxe_wire::Opcode;

use super::xrc::Xrc;
use super::*;

/// Returns two connected hosts of a service.
fn hosts(qp_type: QpType) -> (Host, Host, Wire) {
    let host = |address: Ipv4Addr, seed| {
        let config = DeviceConfig::new(vec![Gid::from_ip(address.into())], seed);
        Host::with(address.into(), config, HostOptions { qp_type, ..HostOptions::default() })
    };
    let (a, b) = (host(A, 1), host(B, 2));
    bring_up(&a, &b, qp_type);
    (a, b, Wire::default())
}

fn bring_up(a: &Host, b: &Host, qp_type: QpType) {
    if qp_type == QpType::Ud {
        [a, b].into_iter().for_each(|host| start(host, host.qp, qp_type));
    } else {
        connect(a, a.qp, b, b.qp);
    }
}

/// Posts a SEND from `a` to `b`.
fn send(a: &Host, b: &Host, qp_type: QpType, sge: Sge) {
    let to = match qp_type {
        QpType::Ud => to_qp(a.ah(b.address), b.qp.qpn(), QKEY),
        _ => Destination::Peer,
    };
    let sges = [sge];
    a.post_request(a.qp, &SendRequest { to, ..request(SendOp::Send, &sges) }).unwrap();
}

#[test]
fn reset_drops_posted_sends_and_receives() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let (a, b, wire) = hosts(qp_type);
        b.post_recv(1, &[b.sge(0, 256)]);
        send(&a, &b, qp_type, a.sge(0, 8));
        [&a, &b].into_iter().for_each(|host| host.go_to(host.qp, QpState::Reset));
        bring_up(&a, &b, qp_type);
        run(&a, &b, &wire);
        assert_eq!((a.statuses(), b.statuses()), (vec![], vec![]), "{qp_type}");
        b.post_recv(2, &[b.sge(0, 256)]);
        send(&a, &b, qp_type, a.sge(0, 8));
        run(&a, &b, &wire);
        assert_eq!(a.statuses(), [WcStatus::Success], "{qp_type}");
        let received = b.completions();
        assert_eq!(received.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [2], "{qp_type}");
    }
}

#[test]
fn receives_are_flushed_in_err() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let (_, b, _) = hosts(qp_type);
        b.post_recv(1, &[b.sge(0, 256)]);
        b.go_to(b.qp, QpState::Err);
        assert_eq!(b.statuses(), [WcStatus::WrFlushErr], "{qp_type}");
    }
}

#[test]
fn a_failed_unreliable_send_flushes_those_behind_it() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let (a, b, wire) = hosts(qp_type);
        b.post_recv(1, &[b.sge(0, 256)]);
        send(&a, &b, qp_type, Sge { lkey: no_lkey(), ..a.sge(0, 8) });
        send(&a, &b, qp_type, a.sge(0, 8));
        a.transmit(&wire);
        assert_eq!(a.statuses(), [WcStatus::LocProtErr, WcStatus::WrFlushErr], "{qp_type}");
        assert!(wire.take().is_empty(), "{qp_type}: nothing is sent");
        assert_eq!(a.state(a.qp), QpState::Sqe, "{qp_type}");
    }
}

#[test]
fn a_datagram_queue_pair_without_a_message_outlives_its_address_handle() {
    let (a, b, wire) = hosts(QpType::Ud);
    for round in 0..2 {
        b.post_recv(round, &[b.sge(0, 256)]);
        let (ah, sges) = (a.ah(B.into()), [a.sge(0, 8)]);
        let to = to_qp(ah, b.qp.qpn(), QKEY);
        a.post_request(a.qp, &SendRequest { to, ..request(SendOp::Send, &sges) }).unwrap();
        run(&a, &b, &wire);
        a.device.destroy_ah(ah).unwrap();
        run(&a, &b, &wire);
        assert_eq!((a.statuses(), b.statuses().len()), (vec![WcStatus::Success], 1), "{round}");
        assert_eq!(a.state(a.qp), QpState::Rts);
    }
}

/// The queue pair waits on the path of its former message when the next message is posted.
#[test]
fn a_message_to_another_peer_is_sent_though_the_former_path_closes() {
    let (a, b, wire) = hosts(QpType::Ud);
    let third = Ipv4Addr::new(10, 0, 0, 3);
    let config = DeviceConfig::new(vec![Gid::from_ip(third.into())], 3);
    let options = HostOptions { qp_type: QpType::Ud, ..HostOptions::default() };
    let c = Host::with(third.into(), config, options);
    start(&c, c.qp, QpType::Ud);
    let [to_b, to_c] = [B, third].map(|address| a.ah(address.into()));
    let sges = [a.sge(0, 8)];
    let send = |to| a.post_request(a.qp, &SendRequest { to, ..request(SendOp::Send, &sges) });
    [&b, &c].into_iter().for_each(|host| host.post_recv(1, &[host.sge(0, 256)]));
    send(to_qp(to_b, b.qp.qpn(), QKEY)).unwrap();
    run_all(&[&a, &b, &c], &wire);
    assert_eq!(b.statuses(), [WcStatus::Success]);
    send(to_qp(to_c, c.qp.qpn(), QKEY)).unwrap();
    a.device.destroy_ah(to_b).unwrap();
    run_all(&[&a, &b, &c], &wire);
    assert_eq!((a.statuses(), c.statuses()), (vec![WcStatus::Success; 2], vec![WcStatus::Success]));
}

#[test]
fn the_longest_message_of_a_device_arrives_and_no_longer_one() {
    const LONGEST: u32 = 2048;
    for qp_type in [QpType::Rc, QpType::Uc] {
        let (a, _, wire) = hosts(qp_type);
        let mut config = DeviceConfig::new(vec![Gid::from_ip(B.into())], 2);
        config.limits.max_msg_sz = LONGEST.into();
        let b = Host::with(B.into(), config, HostOptions { qp_type, ..HostOptions::default() });
        a.go_to(a.qp, QpState::Reset);
        connect(&a, a.qp, &b, b.qp);
        b.post_recv(1, &[b.sge(0, 8192)]);
        send(&a, &b, qp_type, a.sge(0, LONGEST));
        a.post(SendOp::Write { remote: b.remote(0) }, &[a.sge(0, LONGEST)]);
        run(&a, &b, &wire);
        assert_eq!(a.statuses(), [WcStatus::Success; 2], "{qp_type}");
        assert_eq!(b.statuses(), [WcStatus::Success], "{qp_type}");
        b.write(0, &[0; 8192]);
        a.write(0, &[7; 8192]);
        a.post(SendOp::Write { remote: b.remote(0) }, &[a.sge(0, LONGEST + 1)]);
        run(&a, &b, &wire);
        let expected =
            if qp_type == QpType::Rc { WcStatus::RemInvReqErr } else { WcStatus::Success };
        assert_eq!(a.statuses(), [expected], "{qp_type}");
        assert_eq!(b.bytes(0, 16), [0; 16], "{qp_type}: nothing is written");
    }
}

#[test]
fn a_receive_with_a_bad_key_at_its_end_takes_no_byte() {
    let (a, b, wire) = pair();
    a.write(0, &[7; 2048]);
    let bad = Sge { lkey: no_lkey(), ..b.sge(1024, 1024) };
    b.post_recv(1, &[b.sge(0, 1024), bad]);
    a.post(SendOp::Send, &[a.sge(0, 2048)]);
    run(&a, &b, &wire);
    assert_eq!(a.statuses(), [WcStatus::RemOpErr]);
    assert_eq!(b.statuses(), [WcStatus::LocProtErr]);
    assert_eq!(b.bytes(0, 1024), [0; 1024]);
}

#[test]
fn a_message_goes_to_and_comes_from_entries_of_any_length() {
    let (a, b, wire) = pair();
    a.write(0, &pattern(6000));
    // The packets begin and end within entries, and some entries have no bytes. Other bytes are
    // between them.
    let lengths = [1, 0, 1500, 700, 0, 2000, 799];
    let places = || {
        let mut at = 0;
        lengths.map(|length| {
            let place = (at, length);
            at += u64::from(length) + 64;
            place
        })
    };
    let entries = |host: &Host| places().map(|(at, length)| host.sge(at, length));
    let init = QpInit { cap: QpCap { max_send_sge: 8, max_recv_sge: 8, ..qp::CAP }, ..a.init() };
    let (from, to) = (a.create(&init), b.create(&QpInit { cap: init.cap, ..b.init() }));
    connect(&a, from, &b, to);
    b.post_recv_on(to, 1, &entries(&b));
    a.post_on(from, SendOp::Send, &entries(&a));
    run(&a, &b, &wire);
    assert_eq!((a.statuses(), b.statuses()), (vec![WcStatus::Success], vec![WcStatus::Success]));
    let (sent, received) = (a.bytes(0, 6000), b.bytes(0, 6000));
    for (at, length) in places() {
        let (at, end) = (at as usize, at as usize + length as usize);
        assert!(sent[at..end] == received[at..end], "{at}..{end}");
        assert_eq!(received[end..end + 64], [0; 64], "behind {at}..{end}");
    }
}

#[test]
fn an_xrc_target_sends_nothing_and_is_drained_at_once() {
    let xrc = Xrc::new();
    let sges = [xrc.b.sge(0, 4)];
    let refused = xrc.b.post_request(xrc.to, &request(SendOp::Send, &sges));
    assert_refused!(refused, PostError::NoQueue { queue: "send", .. }, EINVAL);
    let attr = QpAttr { en_sqd_async_notify: true, ..state(QpState::Sqd) };
    xrc.b.modify(xrc.to, &attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    let drained = AsyncEvent::Qp(QpEventType::SqDrained, xrc.to.qpn());
    assert_eq!(xrc.b.events(), [drained]);
}

#[test]
fn an_xrc_initiator_drops_requests_and_an_xrc_target_drops_responses() {
    let (xrc, inbox) = Xrc::with_inbox();
    let wire = Wire::default();
    xrc.post(&inbox, SendOp::Send, &[xrc.a.sge(0, 4)]);
    xrc.a.transmit(&wire);
    // The request comes back to its sender.
    let mut request = PacketRun { from: B.into(), to: A.into(), ..wire.pop().expect("a request") };
    request.readdress(xrc.from.qpn());
    wire.deliver(&xrc.a.device, xrc.a.clock.now(), &request);
    assert_eq!(xrc.a.counter(Counter::DropWrongService), 1);

    let response = Packet { opcode: Opcode::XrcAcknowledge, ..ack(0) };
    let run = Packet::merge(A.into(), B.into(), [(xrc.to.qpn(), response)]);
    wire.deliver(&xrc.b.device, xrc.b.clock.now(), &run);
    assert_eq!(xrc.b.counter(Counter::DropWrongService), 1);
}
