//! Connections from the request to the end of TIMEWAIT.

use urxe_wire::mad::{Attribute, PortSpace, RejReason};
use urxe_wire::{Gid, Qpn};

use super::two_hosts::{Host, TwoHosts};
use crate::cm::table::CmState;
use crate::cma::{CmaError, CmaEventType, ConnParam, EventParam, IdState};
use urxe_types::access::Access;
use urxe_types::attr::{PathMtu, QpAttrMask, QpState, QpType};
use urxe_types::sync::Arc;
use urxe_types::wake::NoWake;

/// Returns the private data of an event, and checks that zeros follow `len` bytes.
fn data(param: &EventParam, len: usize) -> Vec<u8> {
    let bytes = match param {
        EventParam::Conn(conn) => &conn.private_data,
        EventParam::Ud(ud) => &ud.private_data,
        EventParam::None => return Vec::new(),
    };
    assert!(bytes[len..].iter().all(|byte| *byte == 0));
    bytes[..len].to_vec()
}

#[test]
fn both_sides_receive_the_parameters_and_their_queue_pairs_match() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "10.0.0.2:4000", 0);
    let active = hosts.a.resolved(PortSpace::TCP, "10.0.0.2:4000");
    let param = ConnParam {
        private_data: &[1, 2, 3],
        responder_resources: 5,
        initiator_depth: 6,
        retry_count: 9,
        rnr_retry_count: 4,
        flow_control: true,
        qpn: Qpn::masked(0x77),
        ece: (0x1234, 0x5678),
        ..ConnParam::default()
    };
    hosts.connect(active, &param);
    let event = hosts.b.expect(CmaEventType::ConnectRequest);
    assert_eq!((event.id, event.user, event.ece), (listener, 7, (0x1234, 0x5678)));
    assert_eq!(data(&event.param, 3), [1, 2, 3]);
    let EventParam::Conn(conn) = &event.param else { panic!("{event:?}") };
    assert_eq!(
        (conn.responder_resources, conn.initiator_depth, conn.private_data.len()),
        (6, 5, 56)
    );
    assert_eq!((conn.retry_count, conn.rnr_retry_count, conn.qpn.value()), (7, 4, 0x77));
    let passive = event.new_id.unwrap();
    let (src, dst) = hosts.b.cma.addresses(passive).unwrap();
    assert_eq!(src, Some("10.0.0.2:4000".parse().unwrap()));
    assert_eq!(dst, hosts.a.cma.addresses(active).unwrap().0);

    let answer = ConnParam {
        private_data: &[9; 196],
        responder_resources: 2,
        initiator_depth: 3,
        rnr_retry_count: 1,
        qpn: Qpn::masked(0x99),
        ece: (0x1234, 0x1),
        ..ConnParam::default()
    };
    hosts.accept(passive, &answer);
    let event = hosts.a.expect(CmaEventType::ConnectResponse);
    assert_eq!((data(&event.param, 196), event.ece), (vec![9; 196], (0x1234, 0x1)));
    let EventParam::Conn(conn) = &event.param else { panic!("{event:?}") };
    assert_eq!((conn.responder_resources, conn.initiator_depth), (3, 2));
    assert_eq!((conn.rnr_retry_count, conn.qpn.value()), (1, 0x99));

    let both = [(&hosts.a, active, 0x99, (2, 3), 1), (&hosts.b, passive, 0x77, (3, 2), 4)];
    let mut psns = Vec::new();
    for (host, id, peer, (asks, answers), rnr_retry) in both {
        let (init, mask) = host.cma.qp_attr(id, QpState::Init).unwrap();
        assert!(
            mask.contains(QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::ACCESS_FLAGS)
        );
        assert!(init.access_flags.contains(Access::REMOTE_WRITE | Access::REMOTE_READ));
        let (rtr, _) = host.cma.qp_attr(id, QpState::Rtr).unwrap();
        assert_eq!((rtr.dest_qp_num.value(), rtr.path_mtu), (peer, PathMtu::Mtu1024));
        assert_eq!((rtr.max_dest_rd_atomic, rtr.ah.sgid_index), (answers, 1));
        let (rts, mask) = host.cma.qp_attr(id, QpState::Rts).unwrap();
        assert_eq!((rts.max_rd_atomic, rts.rnr_retry, rts.retry_cnt), (asks, rnr_retry, 7));
        // As for a kernel's connection: packet life time 16, acknowledgement delay 15.
        assert_eq!(rts.timeout, 17);
        assert!(mask.contains(QpAttrMask::TIMEOUT | QpAttrMask::SQ_PSN));
        psns.push((rtr.rq_psn, rts.sq_psn));
    }
    assert_eq!((psns[0].0, psns[0].1), (psns[1].1, psns[1].0));
    assert_eq!(hosts.a.cma.gids(active).unwrap().1, Gid::from_ip("10.0.0.2".parse().unwrap()));

    hosts.establish(active);
    assert_eq!(hosts.b.expect(CmaEventType::Established).id, passive);
    hosts.destroy([active], [passive, listener]);
    hosts.assert_empty();
}

#[test]
fn the_end_of_a_connection_and_of_timewait_is_reported_once() {
    let mut hosts = TwoHosts::new();
    let (active, passive) = hosts.connected();
    hosts.b.cma.disconnect(hosts.now, passive).unwrap();
    hosts.run();
    hosts.a.expect(CmaEventType::Disconnected);
    assert_eq!(hosts.b.event(), None, "the peer has not answered yet");
    hosts.a.cma.disconnect(hosts.now, active).unwrap();
    hosts.run();
    hosts.b.expect(CmaEventType::Disconnected);
    assert_eq!(hosts.a.cma.state(active), Some(IdState::Disconnect));
    hosts.wait();
    assert_eq!(hosts.a.expect(CmaEventType::TimewaitExit).id, active);
    assert_eq!(hosts.b.expect(CmaEventType::TimewaitExit).id, passive);
    // Another call has no effect, as in the kernel.
    hosts.a.cma.disconnect(hosts.now, active).unwrap();
    hosts.destroy([active], [passive]);
    hosts.assert_empty();
}

#[test]
fn a_connection_to_a_dead_peer_ends_after_a_timeout() {
    let mut hosts = TwoHosts::new();
    let (active, passive) = hosts.connected();
    hosts.is_down = true;
    hosts.a.cma.disconnect(hosts.now, active).unwrap();
    hosts.wait();
    assert_eq!(hosts.a.expect(CmaEventType::Disconnected).status, -libc::ETIMEDOUT);
    hosts.a.expect(CmaEventType::TimewaitExit);
    hosts.is_down = false;
    hosts.destroy([active], [passive]);
    hosts.assert_empty();
}

/// As with a kernel, the program learns this by accepting, or by requesting attributes of its queue
/// pair.
#[test]
fn a_withdrawn_request_causes_no_event() {
    let mut hosts = TwoHosts::new();
    let (listener, active, passive) = hosts.asked(&ConnParam::default());
    assert!(hosts.b.cma.qp_attr(passive, QpState::Init).is_ok());
    hosts.a.cma.destroy_id(hosts.now, active).unwrap();
    hosts.run();
    assert_eq!(hosts.b.event(), None);
    let refused = CmaError::CommState(CmState::Idle);
    assert_eq!(hosts.b.cma.qp_attr(passive, QpState::Init).err(), Some(refused));
    assert_eq!(refused.errno(), libc::EINVAL);
    assert!(hosts.b.cma.accept(hosts.now, passive, &ConnParam::default()).is_err());
    hosts.destroy([], [passive, listener]);
    hosts.assert_empty();
}

/// The active side has an unread reply when the passive side withdraws it.
#[test]
fn a_connection_that_was_not_established_reports_no_end() {
    let mut hosts = TwoHosts::new();
    let (listener, active, passive) = hosts.asked(&ConnParam::default());
    hosts.accept(passive, &ConnParam::default());
    hosts.b.cma.destroy_id(hosts.now, passive).unwrap();
    hosts.run();
    hosts.a.expect(CmaEventType::ConnectResponse);
    hosts.a.expect(CmaEventType::Rejected);
    assert_eq!(
        hosts.a.cma.qp_attr(active, QpState::Rtr).err(),
        Some(CmaError::CommState(CmState::Timewait))
    );
    assert!(hosts.a.cma.establish(hosts.now, active).is_err());
    hosts.a.cma.disconnect(hosts.now, active).unwrap();
    hosts.wait();
    assert_eq!(hosts.a.event(), None);
    hosts.destroy([active], [listener]);
    hosts.assert_empty();
}

#[test]
fn a_rejection_has_its_reason_and_a_port_without_listener_is_rejected() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    let [refused, absent] = [9, 10].map(|port| hosts.begin(port, port.into()));
    hosts.run();
    let event = hosts.a.expect(CmaEventType::Rejected);
    assert_eq!((event.id, event.status), (absent, i32::from(RejReason::INVALID_SERVICE_ID.0)));
    let request = hosts.request();
    hosts.b.cma.reject(hosts.now, request, RejReason::CONSUMER_DEFINED, b"no").unwrap();
    hosts.run();
    let event = hosts.a.expect(CmaEventType::Rejected);
    assert_eq!((event.id, event.status), (refused, 28));
    assert_eq!(data(&event.param, 2), b"no");
    hosts.destroy([refused, absent], [request, listener]);
    hosts.assert_empty();
}

#[test]
fn a_full_backlog_sends_no_reply_and_accepts_the_next_try() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 1);
    let ids = [1, 2].map(|qpn| hosts.begin(9, qpn));
    hosts.run();
    let first = hosts.request();
    assert_eq!(hosts.b.event(), None);
    assert_eq!(hosts.a.event(), None);
    hosts.now = hosts.a.cma.next_deadline().unwrap();
    hosts.a.cma.handle_timeout(hosts.now);
    hosts.run();
    let second = hosts.request();
    hosts.destroy(ids, [first, second, listener]);
    hosts.assert_empty();
}

/// An MRA answers a repeated request, so that a program may take minutes.
#[test]
fn slow_programs_extend_the_timeout_with_mras() {
    let mut hosts = TwoHosts::new();
    let (listener, active, passive) = hosts.asked(&ConnParam::default());
    let sent =
        |host: &Host, attribute| host.cma.manager(host.key).unwrap().counters().sent(attribute);
    assert_eq!(sent(&hosts.b, Attribute::Mra), 0, "nothing was asked again");
    hosts.pass(300);
    assert_eq!(hosts.a.event(), None, "the peer waits");
    // The first retry follows after 4.8 s, the others at the interval of the MRA.
    assert_eq!((sent(&hosts.a, Attribute::Req), sent(&hosts.b, Attribute::Mra)), (6, 5));
    hosts.accept(passive, &ConnParam::default());
    hosts.a.expect(CmaEventType::ConnectResponse);
    hosts.pass(300);
    assert_eq!(hosts.b.event(), None, "the peer waits");
    assert_eq!(sent(&hosts.a, Attribute::Mra), 5);
    hosts.establish(active);
    hosts.b.expect(CmaEventType::Established);
    hosts.destroy([active], [passive, listener]);
    hosts.assert_empty();
}

#[test]
fn a_silent_peer_is_unreachable() {
    let mut hosts = TwoHosts::new();
    hosts.is_down = true;
    let id = hosts.a.resolved(PortSpace::TCP, "10.0.0.2:9");
    hosts.a.cma.connect(hosts.now, id, &ConnParam::default()).unwrap();
    hosts.wait();
    assert_eq!(hosts.a.expect(CmaEventType::Unreachable).status, -libc::ETIMEDOUT);
    hosts.a.cma.destroy_id(hosts.now, id).unwrap();
    hosts.assert_empty();
}

#[test]
fn destroying_a_listener_rejects_pending_requests() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    let id = hosts.begin(9, 0);
    hosts.run();
    hosts.b.cma.destroy_id(hosts.now, listener).unwrap();
    hosts.run();
    assert_eq!(hosts.b.event(), None);
    assert_eq!(hosts.a.expect(CmaEventType::Rejected).status, 28);
    hosts.a.cma.destroy_id(hosts.now, id).unwrap();
    hosts.assert_empty();
}

#[test]
fn removing_a_device_notifies_all_its_identifiers() {
    let mut hosts = TwoHosts::new();
    let (active, passive) = hosts.connected();
    hosts.a.cma.detach(hosts.a.key);
    assert_eq!(hosts.a.expect(CmaEventType::DeviceRemoval).id, active);
    assert_eq!(hosts.a.cma.disconnect(hosts.now, active).unwrap_err().errno(), libc::EINVAL);
    hosts.a.cma.destroy_id(hosts.now, active).unwrap();
    assert_eq!(hosts.a.cma.id_count(), 0);
    hosts.b.cma.destroy_id(hosts.now, passive).unwrap();
    hosts.wait();
    assert!(hosts.b.cma.manager(hosts.b.key).unwrap().is_idle());
}

/// Makes `count` connections, some at once and some in sequence, and checks that none leaks.
fn cycles(count: usize) {
    const AT_ONCE: usize = 50;
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    for round in 0..count / AT_ONCE {
        let active: Vec<_> = (1..=AT_ONCE as u32).map(|qpn| hosts.begin(9, qpn)).collect();
        hosts.run();
        for qpn in 1..=AT_ONCE as u32 {
            let id = hosts.request();
            let param = ConnParam { qpn: Qpn::masked(qpn), ..ConnParam::default() };
            hosts.b.cma.accept(hosts.now, id, &param).unwrap();
        }
        hosts.run();
        for _ in 0..AT_ONCE {
            let id = hosts.a.expect(CmaEventType::ConnectResponse).id;
            hosts.a.cma.establish(hosts.now, id).unwrap();
        }
        hosts.run();
        active.iter().for_each(|id| hosts.a.cma.disconnect(hosts.now, *id).unwrap());
        hosts.run();
        while let Some(event) = hosts.b.event() {
            if event.event_type == CmaEventType::Disconnected {
                hosts.b.cma.disconnect(hosts.now, event.id).unwrap();
                hosts.b.cma.destroy_id(hosts.now, event.id).unwrap();
            }
        }
        hosts.run();
        active.iter().for_each(|id| hosts.a.cma.destroy_id(hosts.now, *id).unwrap());
        assert_eq!((hosts.a.cma.id_count(), hosts.b.cma.id_count()), (0, 1), "round {round}");
        hosts.pass(3);
        for host in [&hosts.a, &hosts.b] {
            assert!(host.cma.manager(host.key).unwrap().is_idle(), "round {round}");
        }
    }
    hosts.b.cma.destroy_id(hosts.now, listener).unwrap();
    hosts.assert_empty();
}

/// As in the kernel (ucma.c, `ucma_close`). qperf 0.4.11 ends its server so.
#[test]
fn destroying_a_channel_ends_its_identifiers_and_tells_their_peers() {
    for is_disconnected in [false, true] {
        let mut hosts = TwoHosts::new();
        let (active, _) = hosts.connected();
        let elsewhere = hosts.b.cma.create_channel(Arc::new(NoWake));
        let other = hosts.b.cma.create_id(elsewhere, PortSpace::TCP, QpType::Rc, 0).unwrap();
        if is_disconnected {
            hosts.a.cma.disconnect(hosts.now, active).unwrap();
            hosts.run();
            assert!(hosts.a.event().is_none(), "there is no DREP yet");
        }
        hosts.b.cma.destroy_channel(hosts.now, hosts.b.channel);
        hosts.run();
        hosts.a.expect(CmaEventType::Disconnected);
        assert_eq!(hosts.b.cma.id_count(), 1, "the identifier of the other channel stays");
        hosts.destroy([active], [other]);
        hosts.assert_empty();
    }
}

#[test]
fn repeated_connections_leave_nothing() {
    cycles(2_000);
}

#[test]
#[ignore = "some seconds: cargo xtask sim"]
fn a_hundred_thousand_connections_leave_nothing() {
    cycles(100_000);
}
