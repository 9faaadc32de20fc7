//! Messages of unknown peers, which may only be counted and answered.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use urxe_wire::mad::{
    Answered, ApStatus, Attribute, Bits, CmMessage, CommId, Drep, Dreq, Lap, Mad, Mra, PrivateData,
    Rej, RejReason, Rep, Req, Rtu, TransactionId,
};
use urxe_wire::{Gid, Qpn};

use super::pair::{NO_INFO, Pair, SERVICE, SETTLED, Script, manager, path, reply, request, route};
use crate::cm::connection::{exponent_ns, timewait_exponent};
use crate::cm::table::CmState;
use crate::cm::{
    CmConfig, CmDrop, CmError, CmEventKind, CmEviction, CmPath, CmTransmit, ConnectionManager,
};
use crate::test_network::{Fate, LATENCY_NS, SECOND_NS};
use urxe_types::time::Time;

/// Returns the REQ of unknown peer number `n`.
fn unknown_peer(n: u32) -> (CmPath, Mad) {
    let remote = Gid::from_ip(Ipv4Addr::from_bits(0xc0a8_0000 + n).into());
    let local = path(1).local;
    let req = Req {
        local_comm_id: CommId(0x1000 + n),
        primary_local_gid: remote,
        primary_remote_gid: local,
        ..request(n)
    };
    (CmPath { local, remote }, Mad::new(TransactionId(u64::from(n)), req))
}

fn transmits(cm: &mut ConnectionManager) -> Vec<CmTransmit> {
    std::iter::from_fn(|| cm.poll_transmit()).collect()
}

/// Returns the only reply, which must go to the source of the request.
fn only_reply(cm: &mut ConnectionManager, path: CmPath) -> Mad {
    let sent = transmits(cm);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].path, path);
    Mad::parse(&sent[0].mad).unwrap()
}

/// What the peer requests at a time is what this side answers at a time.
#[test]
fn a_request_reverses_the_depths_of_the_peer() {
    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 5).unwrap();
    let (path, mut mad) = unknown_peer(1);
    let CmMessage::Req(req) = &mut mad.message else { unreachable!("a REQ") };
    (req.initiator_depth, req.responder_resources) = (3, 5);
    cm.receive(Time::ZERO, path, &mad.to_bytes());
    let id = cm.poll_event().expect("a request").id;
    let agreed = cm.agreed(id).expect("a connection");
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (3, 5));
}

#[test]
fn exponents_beyond_those_of_a_message_are_the_longest_of_one() {
    assert_eq!([0, 1, 31].map(exponent_ns), [4_096, 8_192, 4_096 << 31]);
    assert_eq!([32, 40, 70].map(exponent_ns), [4_096 << 31; 3]);
    assert_eq!([0, 21, 22, 23, 31].map(timewait_exponent), [0, 21, 22, 22, 22]);
}

/// Thousands of requests at once are sent once each, and fit a peer's queue of two windows.
#[test]
fn many_that_begin_at_once_do_not_flood_the_peer() {
    const COUNT: u32 = 3000;
    for script in [Script::Closes(0), Script::BothClose, Script::Service] {
        let mut pair = Pair::new(script, 5);
        // The fixture's listener has a backlog of 64.
        pair.sides[1].cm = manager(2, 9);
        pair.sides[1].cm.listen(SERVICE, None, 10_000).unwrap();
        (0..COUNT).for_each(|n| pair.send_request(0, n));
        let deliver = |_: usize, _: &CmTransmit| Fate::Deliver;
        pair.run(Time::from_ns(SECOND_NS), deliver);
        if script != Script::Service {
            assert_eq!(
                (pair.sides[0].established, pair.sides[1].established),
                (COUNT as usize, COUNT as usize)
            );
        }
        pair.close();
        pair.run(Time::from_ns(2 * SECOND_NS), deliver);
        let asked_again: u64 =
            pair.sides.iter().map(|side| side.cm.counters().tx_retries.iter().sum::<u64>()).sum();
        assert_eq!(
            (asked_again, pair.network.max_in_flight <= 600),
            (0, true),
            "{script:?}: {}",
            pair.network.max_in_flight
        );
        pair.run(SETTLED, deliver);
        pair.assert_idle("many at once");
    }
}

/// Both ends of many connections disconnect at once, so most DREQs wait for their window when the
/// peer's DREQ arrives. The programs do not answer it, because they have disconnected.
#[test]
fn many_that_end_on_both_sides_at_once_learn_of_it() {
    const COUNT: u32 = 300;
    let mut pair = Pair::new(Script::BothCloseInSilence, 6);
    pair.sides[1].cm = manager(2, 9);
    pair.sides[1].cm.listen(SERVICE, None, 10_000).unwrap();
    (0..COUNT).for_each(|n| pair.send_request(0, n));
    let deliver = |_: usize, _: &CmTransmit| Fate::Deliver;
    pair.run(Time::from_ns(SECOND_NS), deliver);
    pair.close();
    pair.run(Time::from_ns(2 * SECOND_NS), deliver);
    for side in &pair.sides {
        assert_eq!((side.established, side.disconnected), (COUNT as usize, COUNT as usize));
        assert_eq!(side.cm.counters().tx_retries.iter().sum::<u64>(), 0);
    }
    pair.release_all();
    pair.run(SETTLED, deliver);
    pair.assert_idle("many ends at once");
}

#[test]
fn a_flood_of_requests_fills_only_the_backlog() {
    let mut cm = manager(1, 1);
    let listener = cm.listen(SERVICE, None, 5).unwrap();
    for n in 0..10_000 {
        let (path, mad) = unknown_peer(n);
        cm.receive(Time::ZERO, path, &mad.to_bytes());
    }
    assert_eq!(cm.connection_count(), 5);
    assert_eq!(cm.counters().dropped(CmDrop::BacklogFull), 9_995);
    assert_eq!(transmits(&mut cm), [], "a full backlog answers nobody");
    // A reply makes space for one more request.
    let first = cm.poll_event().unwrap();
    assert!(matches!(first.kind, CmEventKind::Request { listener: Some(l), .. } if l == listener));
    cm.reject(Time::ZERO, first.id, RejReason::CONSUMER_DEFINED, NO_INFO, PrivateData::NONE)
        .unwrap();
    cm.destroy(Time::ZERO, first.id).unwrap();
    let (path, mad) = unknown_peer(10_001);
    cm.receive(Time::ZERO, path, &mad.to_bytes());
    assert_eq!((cm.connection_count(), cm.counters().dropped(CmDrop::BacklogFull)), (5, 9_995));
}

#[test]
fn a_request_that_the_program_delays_still_fills_the_backlog() {
    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 1).unwrap();
    let [(path, first), (other, second)] = [1, 2].map(unknown_peer);
    cm.receive(Time::ZERO, path, &first.to_bytes());
    let id = cm.poll_event().unwrap().id;
    cm.send_mra(Time::ZERO, id, Bits::masked(20), PrivateData::NONE).unwrap();
    cm.receive(Time::ZERO, other, &second.to_bytes());
    assert_eq!((cm.poll_event(), cm.counters().dropped(CmDrop::BacklogFull)), (None, 1));
}

#[test]
fn a_released_connection_makes_space_for_another_one() {
    let config = CmConfig { max_connections: 1, ..CmConfig::new(1, 1, urxe_wire::mad::Guid(1)) };
    let mut cm = ConnectionManager::new(config);
    for _ in 0..3 {
        let id = cm.connect(Time::ZERO, route(0), request(3), 0, false).unwrap();
        assert!(cm.connect(Time::ZERO, route(0), request(3), 0, false).is_err());
        cm.destroy(Time::ZERO, id).unwrap();
    }
}

#[test]
fn peers_that_never_confirm_are_limited_too() {
    let config = CmConfig { max_half_open: 7, ..CmConfig::new(1, 1, urxe_wire::mad::Guid(1)) };
    let mut cm = ConnectionManager::new(config);
    cm.listen(SERVICE, None, 5).unwrap();
    for n in 0..100 {
        let (path, mad) = unknown_peer(n);
        cm.receive(Time::ZERO, path, &mad.to_bytes());
        while let Some(event) = cm.poll_event() {
            match event.kind {
                CmEventKind::Request { .. } => {
                    cm.accept(Time::ZERO, event.id, reply(n), 0).unwrap();
                }
                // A newer connection evicted this one.
                _ => cm.destroy(Time::ZERO, event.id).unwrap(),
            }
        }
    }
    assert_eq!((cm.connection_count(), cm.counters().evicted(CmEviction::HalfOpen)), (7, 93));
}

#[test]
fn more_connections_than_allowed_are_rejected_on_either_side() {
    let config = CmConfig { max_connections: 2, ..CmConfig::new(1, 1, urxe_wire::mad::Guid(1)) };
    let mut cm = ConnectionManager::new(config);
    cm.listen(SERVICE, None, 5).unwrap();
    for _ in 0..2 {
        cm.connect(Time::ZERO, route(0), request(3), 0, false).unwrap();
    }
    let error = cm.connect(Time::ZERO, route(0), request(3), 0, false).unwrap_err();
    assert_eq!((error, error.errno()), (CmError::TooMany { max: 2 }, libc::ENOMEM));
    transmits(&mut cm);
    // Connections of peers have a limit of their own.
    for n in 1..=2 {
        let (path, mad) = unknown_peer(n);
        cm.receive(Time::ZERO, path, &mad.to_bytes());
        assert_eq!(transmits(&mut cm), []);
    }
    let (path, mad) = unknown_peer(3);
    cm.receive(Time::ZERO, path, &mad.to_bytes());
    let CmMessage::Rej(rej) = only_reply(&mut cm, path).message else { panic!() };
    assert_eq!(rej.reason, RejReason::NO_RESOURCES);
}

/// Returns a connection manager with an established connection, and the ids of both sides.
fn connected() -> (ConnectionManager, CommId, CommId) {
    let mut cm = manager(1, 1);
    let id = cm.connect(Time::ZERO, route(0), request(0x11), 0, false).unwrap();
    let theirs = CommId(0x77);
    let rep = Rep { local_comm_id: theirs, remote_comm_id: id, ..reply(0x22) };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(1), rep).to_bytes());
    cm.confirm(Time::ZERO, id, PrivateData::NONE).unwrap();
    transmits(&mut cm);
    while cm.poll_event().is_some() {}
    (cm, id, theirs)
}

#[test]
fn another_address_cannot_touch_a_connection() {
    let (mut cm, id, theirs) = connected();
    let elsewhere = CmPath { remote: Gid::from_ip([9, 9, 9, 9].into()), ..path(0) };
    macro_rules! theirs {
        ($name:ident $($field:ident: $value:expr),*) => {
            CmMessage::from($name {
                local_comm_id: theirs, remote_comm_id: id, $($field: $value,)* ..$name::default()
            })
        };
    }
    let messages = [
        theirs!(Dreq remote_qpn: Qpn::masked(0x11)),
        theirs!(Rej answered: Answered::Other, reason: RejReason::CONSUMER_DEFINED),
        theirs!(Rep),
        theirs!(Rtu),
        theirs!(Mra answered: Answered::Rep),
        theirs!(Lap),
        theirs!(Drep),
    ];
    for (count, message) in (1..).zip(messages) {
        cm.receive(Time::ZERO, elsewhere, &Mad::new(TransactionId(5), message).to_bytes());
        assert_eq!(cm.state(id), Some(CmState::Established), "{message}");
        assert_eq!(cm.counters().dropped(CmDrop::WrongSource), count, "{message}");
        assert_eq!(transmits(&mut cm), [], "{message}");
        assert_eq!(cm.poll_event(), None);
    }
    // The REJ after a timeout may lack this side's id, but not for an established connection.
    let timeout = Rej {
        local_comm_id: theirs,
        answered: Answered::Other,
        reason: RejReason::TIMEOUT,
        ..Rej::default()
    };
    for (count, from) in (1..).zip([elsewhere, path(0)]) {
        cm.receive(Time::ZERO, from, &Mad::new(TransactionId(5), timeout).to_bytes());
        assert_eq!(
            (cm.state(id), cm.counters().dropped(CmDrop::UnknownId)),
            (Some(CmState::Established), count)
        );
    }
    let timeout = Rej { remote_comm_id: id, ..timeout };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(5), timeout).to_bytes());
    assert_eq!(cm.state(id), Some(CmState::Timewait));
}

#[test]
fn a_dreq_for_another_queue_pair_is_dropped() {
    let (mut cm, id, theirs) = connected();
    let dreq = Dreq {
        local_comm_id: theirs,
        remote_comm_id: id,
        remote_qpn: Qpn::masked(0x12),
        ..Dreq::default()
    };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(5), dreq).to_bytes());
    assert_eq!(
        (cm.state(id), cm.counters().dropped(CmDrop::WrongQpn)),
        (Some(CmState::Established), 1)
    );
}

#[test]
fn a_path_is_not_changed() {
    let (mut cm, id, theirs) = connected();
    let lap = Lap { local_comm_id: theirs, remote_comm_id: id, ..Lap::default() };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(5), lap).to_bytes());
    let mad = only_reply(&mut cm, path(0));
    let CmMessage::Apr(apr) = mad.message else { panic!() };
    assert_eq!(
        (apr.status, apr.local_comm_id, apr.remote_comm_id),
        (ApStatus::UNSUPPORTED, id, theirs)
    );
    assert_eq!((mad.tid, cm.state(id)), (TransactionId(5), Some(CmState::Established)));
    let unknown = Lap { remote_comm_id: CommId(3), ..lap };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(6), unknown).to_bytes());
    let CmMessage::Apr(apr) = only_reply(&mut cm, path(0)).message else { panic!() };
    assert_eq!(apr.status, ApStatus::INVALID_COMM_ID);
}

#[test]
fn messages_of_unknown_connections_are_answered_only_if_the_peer_waits() {
    let mut cm = manager(1, 1);
    for attribute in Attribute::ALL {
        let mut mad = Mad::parse(&{
            let mut bytes = [0; urxe_wire::mad::MAD_LEN];
            urxe_wire::mad::MadHeader::new(attribute, TransactionId(9))
                .emit(bytes.first_chunk_mut().unwrap());
            bytes[24..32].copy_from_slice(&[0, 0, 0, 7, 0x20, 0, 0, 5]);
            bytes
        })
        .unwrap();
        if let CmMessage::Req(req) = &mut mad.message {
            req.service_id = SERVICE;
        }
        assert_eq!(cm.counters().received(attribute), 0);
        cm.receive(Time::ZERO, path(0), &mad.to_bytes());
        let answers: Vec<_> = transmits(&mut cm)
            .iter()
            .map(|t| Mad::parse(&t.mad).unwrap().message.attribute())
            .collect();
        let want: &[Attribute] = match attribute {
            Attribute::Req | Attribute::Rep => &[Attribute::Rej],
            Attribute::Dreq => &[Attribute::Drep],
            Attribute::SidrReq => &[Attribute::SidrRep],
            Attribute::Lap => &[Attribute::Apr],
            _ => &[],
        };
        assert_eq!(answers, want, "{attribute}");
        assert_eq!(cm.counters().received(attribute), 1);
    }
    assert!(cm.is_idle());
    assert_eq!(cm.counters().dropped(CmDrop::UnknownId), 9);
}

#[test]
fn invalid_requests_are_rejected_with_their_reason() {
    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 5).unwrap();
    let (from, good) = unknown_peer(1);
    let CmMessage::Req(good) = good.message else { panic!() };
    let elsewhere = Gid::from_ip([9, 9, 9, 9].into());
    let bits = Bits::masked;
    let cases = [
        (Req { service_id: urxe_wire::mad::ServiceId(1), ..good }, RejReason::INVALID_SERVICE_ID),
        (Req { primary_remote_gid: elsewhere, ..good }, RejReason::INVALID_GID),
        (Req { primary_local_gid: elsewhere, ..good }, RejReason::INVALID_GID),
        (Req { path_mtu: bits(0), ..good }, RejReason::INVALID_MTU),
        (Req { path_mtu: bits(6), ..good }, RejReason::INVALID_MTU),
        (
            Req { transport_type: urxe_wire::mad::TransportType::Rd, ..good },
            RejReason::INVALID_TRANSPORT_TYPE,
        ),
        (
            Req { transport_type: urxe_wire::mad::TransportType::Extended, ..good },
            RejReason::INVALID_TRANSPORT_TYPE,
        ),
    ];
    for (req, reason) in cases {
        cm.receive(Time::ZERO, from, &Mad::new(TransactionId(1), req).to_bytes());
        let CmMessage::Rej(rej) = only_reply(&mut cm, from).message else { panic!() };
        assert_eq!((rej.reason, rej.answered), (reason, Answered::Req));
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId::NONE, req.local_comm_id));
        assert_eq!(cm.connection_count(), 0, "{reason}");
    }
}

/// A peer that restarted and reuses its queue pair number is rejected. The old connection stays,
/// unlike in IBTA 12.9.8.3.1, because the address and the number may be forged.
#[test]
fn a_request_from_a_queue_pair_that_is_connected_does_not_end_the_connection() {
    let mut pair = Pair::new(Script::Closes(0), 5);
    pair.send_request(0, 0x11);
    pair.run(Time::from_ns(SECOND_NS), |_, _| Fate::Deliver);
    assert!(pair.is_connected(1));
    // Side 0 restarts.
    pair.sides[0].cm = manager(1, 99);
    pair.sides[0].held.clear();
    pair.send_request(0, 0x11);
    pair.run(Time::from_ns(SECOND_NS + 3 * LATENCY_NS), |_, _| Fate::Deliver);
    assert_eq!(pair.sides[0].refused, [RejReason::STALE_CONN]);
    assert!(pair.is_connected(1));
    // Another queue pair of the peer connects.
    pair.send_request(0, 0x12);
    pair.run(Time::from_ns(2 * SECOND_NS), |_, _| Fate::Deliver);
    assert_eq!(pair.sides[1].established, 2);
    // The program ends the old connection, and the queue pair is free again.
    let old = pair.sides[1].held[0];
    pair.sides[1].cm.destroy(pair.now, old).unwrap();
    pair.run(Time::from_ns(300 * SECOND_NS), |_, _| Fate::Deliver);
    pair.send_request(0, 0x11);
    pair.run(Time::from_ns(301 * SECOND_NS), |_, _| Fate::Deliver);
    assert_eq!(pair.sides[1].established, 3);
}

/// An attacker that guesses the number of a peer's next queue pair forges REQs in the name of the
/// peer. They keep the queue pair neither from connecting nor from accepting.
#[test]
fn forged_requests_do_not_keep_the_queue_pair_of_an_honest_peer_out() {
    for is_accepted in [false, true] {
        let mut cm = manager(1, 1);
        cm.listen(SERVICE, None, 10).unwrap();
        let (path, honest) = unknown_peer(7);
        let CmMessage::Req(request) = honest.message else { panic!() };
        for n in 1..=3 {
            let forged = Req { local_comm_id: CommId(n), ..request };
            cm.receive(Time::ZERO, path, &Mad::new(TransactionId(n.into()), forged).to_bytes());
            let id = cm.poll_event().unwrap().id;
            if is_accepted {
                cm.accept(Time::ZERO, id, reply(n), 0).unwrap();
            }
        }
        transmits(&mut cm);
        cm.receive(Time::ZERO, path, &honest.to_bytes());
        let id = cm.poll_event().expect("the request of the peer").id;
        cm.accept(Time::ZERO, id, reply(9), 0).unwrap();
        let CmMessage::Rep(rep) = only_reply(&mut cm, path).message else { panic!() };
        let theirs = request.local_comm_id;
        let rtu = Rtu { local_comm_id: theirs, remote_comm_id: id, ..Rtu::default() };
        cm.receive(Time::ZERO, path, &Mad::new(honest.tid, rtu).to_bytes());
        assert_eq!((rep.remote_comm_id, cm.state(id)), (theirs, Some(CmState::Established)));
    }
    let mut cm = manager(1, 1);
    cm.listen(SERVICE, None, 10).unwrap();
    let forged = Req {
        local_comm_id: CommId(1),
        primary_local_gid: path(0).remote,
        primary_remote_gid: path(0).local,
        ..request(0x22)
    };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(1), forged).to_bytes());
    let id = cm.connect(Time::ZERO, route(0), request(0x11), 0, false).unwrap();
    let rep = Rep { local_comm_id: CommId(0x77), remote_comm_id: id, ..reply(0x22) };
    cm.receive(Time::ZERO, path(0), &Mad::new(TransactionId(2), rep).to_bytes());
    assert_eq!(cm.state(id), Some(CmState::RepRcvd));
}

proptest! {
    /// Any MADs from the peer of an established connection neither panic nor leak.
    #[test]
    fn any_messages_into_a_live_manager(
        mads in proptest::collection::vec(
            (0_usize..11, any::<[u8; 8]>(), 0_u8..4, any::<u16>()),
            1..60,
        ),
    ) {
        let (mut cm, id, theirs) = connected();
        cm.listen(SERVICE, None, 3).unwrap();
        let mut now = Time::ZERO;
        for (which, noise, ids, more) in mads {
            let mut bytes = [0; urxe_wire::mad::MAD_LEN];
            let header = urxe_wire::mad::MadHeader::new(Attribute::ALL[which], TransactionId(1));
            header.emit(bytes.first_chunk_mut().unwrap());
            let (first, second) = match ids {
                0 => (theirs, id),
                1 => (id, theirs),
                2 => (theirs, CommId::NONE),
                _ => (CommId(more.into()), id),
            };
            bytes[24..28].copy_from_slice(&first.0.to_be_bytes());
            bytes[28..32].copy_from_slice(&second.0.to_be_bytes());
            bytes[32..40].copy_from_slice(&noise);
            if more & 1 == 0 { bytes[32..40].copy_from_slice(&SERVICE.0.to_be_bytes()); }
            cm.receive(now, path(0), &bytes);
            now = now.plus_ns(u64::from(more) * 100_000);
            cm.handle_timeout(now);
            while let Some(event) = cm.poll_event() {
                match noise[0] % 4 {
                    0 => { let _ = cm.accept(now, event.id, reply(more.into()), 0); }
                    1 => { let _ = cm.confirm(now, event.id, PrivateData::NONE); }
                    2 => { let _ = cm.destroy(now, event.id); }
                    _ => { let _ = cm.confirm_disconnect(now, event.id, PrivateData::NONE); }
                }
            }
            prop_assert!(cm.connection_count() <= 1 + 3 + 60);
            transmits(&mut cm);
        }
    }
}
