//! Connections from the request to the end of TIMEWAIT.

use urxe_wire::mad::{Attribute, PortSpace, RejReason};
use urxe_wire::{Gid, Qpn};

use super::world::{Host, World};
use crate::cm::table::CmState;
use crate::cma::{CmaError, CmaEventType, ConnParam, EventParam, IdState};
use urxe_types::access::Access;
use urxe_types::attr::{PathMtu, QpAttrMask, QpState};

/// The data of an event, without the zeros behind `len` bytes.
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
fn both_sides_learn_what_the_other_said_and_their_queue_pairs_fit() {
    let mut world = World::new();
    let listener = world.b.listen(PortSpace::TCP, "10.0.0.2:4000", 0);
    let active = world.a.resolved(PortSpace::TCP, "10.0.0.2:4000");
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
    world.connect(active, &param);
    let event = world.b.expect(CmaEventType::ConnectRequest);
    assert_eq!((event.id, event.user, event.ece), (listener, 7, (0x1234, 0x5678)));
    assert_eq!(data(&event.param, 3), [1, 2, 3]);
    let EventParam::Conn(conn) = &event.param else { panic!("{event:?}") };
    assert_eq!(
        (conn.responder_resources, conn.initiator_depth, conn.private_data.len()),
        (6, 5, 56)
    );
    assert_eq!((conn.retry_count, conn.rnr_retry_count, conn.qpn.value()), (7, 4, 0x77));
    let passive = event.new_id.unwrap();
    let (src, dst) = world.b.cma.addresses(passive).unwrap();
    assert_eq!(src, Some("10.0.0.2:4000".parse().unwrap()));
    assert_eq!(dst, world.a.cma.addresses(active).unwrap().0);

    let answer = ConnParam {
        private_data: &[9; 196],
        responder_resources: 2,
        initiator_depth: 3,
        rnr_retry_count: 1,
        qpn: Qpn::masked(0x99),
        ece: (0x1234, 0x1),
        ..ConnParam::default()
    };
    world.accept(passive, &answer);
    let event = world.a.expect(CmaEventType::ConnectResponse);
    assert_eq!((data(&event.param, 196), event.ece), (vec![9; 196], (0x1234, 0x1)));

    let both = [(&world.a, active, 0x99, (2, 3), 1), (&world.b, passive, 0x77, (3, 2), 4)];
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
        // As a kernel's connection: a packet life time of 16 and an acknowledgement delay of 15.
        assert_eq!(rts.timeout, 17);
        assert!(mask.contains(QpAttrMask::TIMEOUT | QpAttrMask::SQ_PSN));
        psns.push((rtr.rq_psn, rts.sq_psn));
    }
    assert_eq!((psns[0].0, psns[0].1), (psns[1].1, psns[1].0));
    assert_eq!(world.a.cma.gids(active).unwrap().1, Gid::from_ip("10.0.0.2".parse().unwrap()));

    world.establish(active);
    assert_eq!(world.b.expect(CmaEventType::Established).id, passive);
    world.destroy([active], [passive, listener]);
    world.assert_empty();
}

#[test]
fn an_end_is_told_once_and_its_time_of_waiting_too() {
    let mut world = World::new();
    let (active, passive) = world.connected();
    world.b.cma.disconnect(world.now, passive).unwrap();
    world.run();
    world.a.expect(CmaEventType::Disconnected);
    assert_eq!(world.b.event(), None, "the peer has not answered yet");
    world.a.cma.disconnect(world.now, active).unwrap();
    world.run();
    world.b.expect(CmaEventType::Disconnected);
    assert_eq!(world.a.cma.state(active), Some(IdState::Disconnect));
    world.wait();
    assert_eq!(world.a.expect(CmaEventType::TimewaitExit).id, active);
    assert_eq!(world.b.expect(CmaEventType::TimewaitExit).id, passive);
    // Once more does nothing, as in the kernel.
    world.a.cma.disconnect(world.now, active).unwrap();
    world.destroy([active], [passive]);
    world.assert_empty();
}

#[test]
fn a_peer_that_is_gone_ends_a_connection_by_itself() {
    let mut world = World::new();
    let (active, passive) = world.connected();
    world.is_cut = true;
    world.a.cma.disconnect(world.now, active).unwrap();
    world.wait();
    assert_eq!(world.a.expect(CmaEventType::Disconnected).status, -libc::ETIMEDOUT);
    world.a.expect(CmaEventType::TimewaitExit);
    world.is_cut = false;
    world.destroy([active], [passive]);
    world.assert_empty();
}

/// As over a kernel, the program hears of it by accepting, or by asking for its queue pair's
/// attributes.
#[test]
fn a_request_that_is_withdrawn_is_not_told() {
    let mut world = World::new();
    let (listener, active, passive) = world.asked(&ConnParam::default());
    assert!(world.b.cma.qp_attr(passive, QpState::Init).is_ok());
    world.a.cma.destroy_id(world.now, active).unwrap();
    world.run();
    assert_eq!(world.b.event(), None);
    let refused = CmaError::CommState(CmState::Idle);
    assert_eq!(world.b.cma.qp_attr(passive, QpState::Init).err(), Some(refused));
    assert_eq!(refused.errno(), libc::EINVAL);
    assert!(world.b.cma.accept(world.now, passive, &ConnParam::default()).is_err());
    world.destroy([], [passive, listener]);
    world.assert_empty();
}

/// The active side has the answer in its channel when the passive side takes it back.
#[test]
fn what_never_was_a_connection_has_no_end_to_tell_of() {
    let mut world = World::new();
    let (listener, active, passive) = world.asked(&ConnParam::default());
    world.accept(passive, &ConnParam::default());
    world.b.cma.destroy_id(world.now, passive).unwrap();
    world.run();
    world.a.expect(CmaEventType::ConnectResponse);
    world.a.expect(CmaEventType::Rejected);
    assert_eq!(
        world.a.cma.qp_attr(active, QpState::Rtr).err(),
        Some(CmaError::CommState(CmState::Timewait))
    );
    assert!(world.a.cma.establish(world.now, active).is_err());
    world.a.cma.disconnect(world.now, active).unwrap();
    world.wait();
    assert_eq!(world.a.event(), None);
    world.destroy([active], [listener]);
    world.assert_empty();
}

#[test]
fn who_refuses_says_why_and_who_does_not_listen_is_not_reached() {
    let mut world = World::new();
    let listener = world.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    let [refused, absent] = [9, 10].map(|port| world.begin(port, port.into()));
    world.run();
    let event = world.a.expect(CmaEventType::Rejected);
    assert_eq!((event.id, event.status), (absent, i32::from(RejReason::INVALID_SERVICE_ID.0)));
    let request = world.request();
    world.b.cma.reject(world.now, request, RejReason::CONSUMER_DEFINED, b"no").unwrap();
    world.run();
    let event = world.a.expect(CmaEventType::Rejected);
    assert_eq!((event.id, event.status), (refused, 28));
    assert_eq!(data(&event.param, 2), b"no");
    world.destroy([refused, absent], [request, listener]);
    world.assert_empty();
}

#[test]
fn a_full_backlog_answers_nothing_and_takes_the_next_try() {
    let mut world = World::new();
    let listener = world.b.listen(PortSpace::TCP, "0.0.0.0:9", 1);
    let ids = [1, 2].map(|qpn| world.begin(9, qpn));
    world.run();
    let first = world.request();
    assert_eq!(world.b.event(), None);
    assert_eq!(world.a.event(), None);
    world.now = world.a.cma.next_deadline().unwrap();
    world.a.cma.handle_timeout(world.now);
    world.run();
    let second = world.request();
    world.destroy(ids, [first, second, listener]);
    world.assert_empty();
}

/// What is asked again is answered by an MRA, so that a program may take minutes.
#[test]
fn programs_that_take_their_time_are_borne_with() {
    let mut world = World::new();
    let (listener, active, passive) = world.asked(&ConnParam::default());
    let sent =
        |host: &Host, attribute| host.cma.manager(host.key).unwrap().counters().sent(attribute);
    assert_eq!(sent(&world.b, Attribute::Mra), 0, "nothing was asked again");
    world.pass(300);
    assert_eq!(world.a.event(), None, "the peer waits");
    // Once after 4.8 s; from then on, at the pace that the MRA has asked for.
    assert_eq!((sent(&world.a, Attribute::Req), sent(&world.b, Attribute::Mra)), (6, 5));
    world.accept(passive, &ConnParam::default());
    world.a.expect(CmaEventType::ConnectResponse);
    world.pass(300);
    assert_eq!(world.b.event(), None, "the peer waits");
    assert_eq!(sent(&world.a, Attribute::Mra), 5);
    world.establish(active);
    world.b.expect(CmaEventType::Established);
    world.destroy([active], [passive, listener]);
    world.assert_empty();
}

#[test]
fn a_silent_peer_is_unreachable() {
    let mut world = World::new();
    world.is_cut = true;
    let id = world.a.resolved(PortSpace::TCP, "10.0.0.2:9");
    world.a.cma.connect(world.now, id, &ConnParam::default()).unwrap();
    world.wait();
    assert_eq!(world.a.expect(CmaEventType::Unreachable).status, -libc::ETIMEDOUT);
    world.a.cma.destroy_id(world.now, id).unwrap();
    world.assert_empty();
}

#[test]
fn who_destroys_a_listener_refuses_what_waits() {
    let mut world = World::new();
    let listener = world.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    let id = world.begin(9, 0);
    world.run();
    world.b.cma.destroy_id(world.now, listener).unwrap();
    world.run();
    assert_eq!(world.b.event(), None);
    assert_eq!(world.a.expect(CmaEventType::Rejected).status, 28);
    world.a.cma.destroy_id(world.now, id).unwrap();
    world.assert_empty();
}

#[test]
fn a_device_that_goes_is_told_to_all_that_use_it() {
    let mut world = World::new();
    let (active, passive) = world.connected();
    world.a.cma.detach(world.a.key);
    assert_eq!(world.a.expect(CmaEventType::DeviceRemoval).id, active);
    assert_eq!(world.a.cma.disconnect(world.now, active).unwrap_err().errno(), libc::EINVAL);
    world.a.cma.destroy_id(world.now, active).unwrap();
    assert_eq!(world.a.cma.id_count(), 0);
    world.b.cma.destroy_id(world.now, passive).unwrap();
    world.wait();
    assert!(world.b.cma.manager(world.b.key).unwrap().is_idle());
}

/// So many connections, one after the other and some at once, and nothing of them is left.
fn cycles(count: usize) {
    const AT_ONCE: usize = 50;
    let mut world = World::new();
    let listener = world.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    for round in 0..count / AT_ONCE {
        let active: Vec<_> = (1..=AT_ONCE as u32).map(|qpn| world.begin(9, qpn)).collect();
        world.run();
        for qpn in 1..=AT_ONCE as u32 {
            let id = world.request();
            let param = ConnParam { qpn: Qpn::masked(qpn), ..ConnParam::default() };
            world.b.cma.accept(world.now, id, &param).unwrap();
        }
        world.run();
        for _ in 0..AT_ONCE {
            let id = world.a.expect(CmaEventType::ConnectResponse).id;
            world.a.cma.establish(world.now, id).unwrap();
        }
        world.run();
        active.iter().for_each(|id| world.a.cma.disconnect(world.now, *id).unwrap());
        world.run();
        while let Some(event) = world.b.event() {
            if event.event_type == CmaEventType::Disconnected {
                world.b.cma.disconnect(world.now, event.id).unwrap();
                world.b.cma.destroy_id(world.now, event.id).unwrap();
            }
        }
        world.run();
        active.iter().for_each(|id| world.a.cma.destroy_id(world.now, *id).unwrap());
        assert_eq!((world.a.cma.id_count(), world.b.cma.id_count()), (0, 1), "round {round}");
        world.pass(3);
        for host in [&world.a, &world.b] {
            assert!(host.cma.manager(host.key).unwrap().is_idle(), "round {round}");
        }
    }
    world.b.cma.destroy_id(world.now, listener).unwrap();
    world.assert_empty();
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    cycles(2_000);
}

#[test]
#[ignore = "some seconds: cargo xtask sim"]
fn a_hundred_thousand_connections_leave_nothing() {
    cycles(100_000);
}
