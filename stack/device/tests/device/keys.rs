//! Keys that work requests make and invalidate: memory windows, fast registration, invalidation by
//! either side.

use urxe_wire::{Lkey, NakCode, Opcode, Rkey, Syndrome};

use super::peer::Peer;
use super::*;
use urxe_device::cq::QpEventType;
use urxe_memory::{Bind, MwType, inc_rkey};

/// Returns a region to which windows may be bound.
fn bindable(end: &Host) -> Mr {
    end.register(end.pd, Access::LOCAL_WRITE | Access::MW_BIND)
}

fn bind(mr: &Mr, window: Rkey, offset: u64, length: u64) -> Bind {
    let (new_rkey, addr) = (inc_rkey(window), mr.iova + offset);
    Bind { window, new_rkey, region: mr.lkey, addr, length, access: REMOTE }
}

/// Returns a fast-registration region of `end` for three scattered pages. The first begins in its
/// middle.
fn mapped(end: &Host, page: usize) -> (Rkey, u64, u64) {
    let memory = end.device.memory();
    let key = memory.alloc_fast(end.pd, 8).unwrap();
    let parts = [
        (&end.buffer, 2 * page + page / 2..3 * page),
        (&end.buffer, 7 * page..8 * page),
        (&end.buffer, 5 * page..5 * page + 100),
    ];
    let iova = 0x7000_0000_0000 + page as u64 / 2;
    memory.map_fast_buffers(key, &parts, page, iova).unwrap();
    (key, iova, page as u64 / 2 + page as u64 + 100)
}

#[test]
fn a_peer_uses_a_window_until_it_is_unbound() {
    let (a, b, wire) = pair();
    let mr = bindable(&b);
    let window = b.device.memory().alloc_mw(b.pd, MwType::Type1).unwrap();
    let bound = inc_rkey(window);
    b.post(SendOp::BindMw(bind(&mr, window, 4096, 1000)), &[]);
    run(&a, &b, &wire);
    assert_eq!(b.outcomes(), [(WcOpcode::BindMw, WcStatus::Success)]);

    a.write(0, &pattern(1000));
    let remote = Remote { addr: mr.iova + 4096, rkey: bound };
    a.post(SendOp::Write { remote }, &[a.sge(0, 1000)]);
    a.post(SendOp::Read { remote }, &[a.sge(5000, 1000)]);
    a.post(
        SendOp::FetchAdd { remote: Remote { addr: mr.iova + 4096 + 8, ..remote }, add: 1 },
        &[a.sge(9000, 8)],
    );
    run(&a, &b, &wire);
    assert!(a.outcomes().iter().all(|(_, status)| status.is_success()));
    assert_eq!(a.bytes(5000, 1000), pattern(1000));

    // Binding no bytes unbinds the window, which stays valid under another key.
    let nothing = Bind { length: 0, ..bind(&mr, bound, 0, 0) };
    b.post(SendOp::BindMw(nothing), &[]);
    run(&a, &b, &wire);
    assert_eq!(b.outcomes(), [(WcOpcode::BindMw, WcStatus::Success)]);
    b.device.memory().deregister(mr.lkey).expect("no window is bound to it any more");
    a.post(SendOp::Read { remote }, &[a.sge(5000, 8)]);
    run(&a, &b, &wire);
    assert_eq!(a.outcomes(), [(WcOpcode::RdmaRead, WcStatus::RemAccessErr)]);
    assert_eq!(b.counter(Counter::AccessStaleKey), 1);
    b.device.memory().dealloc_mw(bound).unwrap();
}

#[test]
fn a_type_2_window_is_its_queue_pairs_alone_and_ends_with_it() {
    let (a, b, wire) = pair();
    let mr = bindable(&b);
    let memory = b.device.memory();
    let window = memory.alloc_mw(b.pd, MwType::Type2).unwrap();
    let bound = Rkey(window.0 & !0xff | 0x77);
    let zero_based = REMOTE | Access::ZERO_BASED;
    b.post(
        SendOp::BindMw(Bind { new_rkey: bound, access: zero_based, ..bind(&mr, window, 128, 64) }),
        &[],
    );
    run(&a, &b, &wire);
    assert_eq!(b.outcomes(), [(WcOpcode::BindMw, WcStatus::Success)]);
    assert!(matches!(
        memory.deregister(mr.lkey),
        Err(urxe_memory::DeregMrError::Busy { windows: 1, .. })
    ));

    let (qp_a, _) = connect_another(&a, &b);
    a.write(0, b"through the right queue pair");
    let remote = Remote { addr: 0, rkey: bound };
    a.post(SendOp::Write { remote }, &[a.sge(0, 28)]);
    let (other, sges) = (Remote { addr: 32, ..remote }, [a.sge(0, 8)]);
    let other = SendRequest { wr_id: 8, ..request(SendOp::Write { remote: other }, &sges) };
    a.post_request(qp_a, &other).unwrap();
    run(&a, &b, &wire);
    let mut done = a.completions();
    done.sort_by_key(|c| c.wr_id);
    assert_eq!(
        done.iter().map(|c| c.status).collect::<Vec<_>>(),
        [WcStatus::Success, WcStatus::RemAccessErr]
    );
    assert_eq!(b.bytes(128, 64)[..28], *b"through the right queue pair");
    assert_eq!(b.bytes(160, 8), [0; 8]);
    assert_eq!(b.counter(Counter::AccessWrongQp), 1);

    b.device.destroy_qp(Time::ZERO, b.qp).unwrap();
    memory.deregister(mr.lkey).expect("the window went free with its queue pair");
    memory.dealloc_mw(bound).unwrap();
}

#[test]
fn windows_of_another_domain_are_refused_to_bind_and_to_use() {
    let (a, b, wire) = pair();
    let memory = b.device.memory();
    let stranger = b.device.alloc_pd().unwrap();
    let foreign = memory.alloc_mw(stranger, MwType::Type1).unwrap();
    let theirs = b.register(stranger, Access::LOCAL_WRITE | Access::MW_BIND);
    // The window is bound by a queue pair of its own domain.
    let key = memory.bind(&bind(&theirs, foreign, 0, 100), stranger.into()).unwrap();
    a.post(SendOp::Write { remote: Remote { addr: theirs.iova, rkey: key } }, &[a.sge(0, 8)]);
    run(&a, &b, &wire);
    assert_eq!(a.outcomes(), [(WcOpcode::RdmaWrite, WcStatus::RemAccessErr)]);
    assert_eq!(b.counter(Counter::AccessWrongPd), 1);
    assert_eq!(
        b.device.dealloc_pd(stranger),
        Err(DeallocPdError::Busy { qps: 0, srqs: 0, ahs: 0, holds: 0, mrs: 2, parents: 0 })
    );

    let (a, b, wire) = pair();
    let foreign = b.device.memory().alloc_mw(b.device.alloc_pd().unwrap(), MwType::Type2).unwrap();
    b.post(SendOp::BindMw(bind(&bindable(&b), foreign, 0, 100)), &[]);
    b.post(SendOp::Send, &[]);
    run(&a, &b, &wire);
    let flushed = (WcOpcode::Send, WcStatus::WrFlushErr);
    assert_eq!(b.outcomes(), [(WcOpcode::BindMw, WcStatus::MwBindErr), flushed]);
    assert_eq!(b.state(b.qp), QpState::Err);
}

/// IBTA C9-90.
#[test]
fn a_peer_reads_and_writes_scattered_pages_and_takes_the_key_away() {
    let page = 4096;
    let (a, b, wire) = pair();
    let (key, iova, len) = mapped(&b, page);
    let first = inc_rkey(key);
    b.post(SendOp::RegMr { key: first, access: Access::LOCAL_WRITE | REMOTE }, &[]);
    run(&a, &b, &wire);
    assert_eq!(b.outcomes(), [(WcOpcode::RegMr, WcStatus::Success)]);

    let data = pattern(len as usize);
    a.write(0, &data);
    let remote = Remote { addr: iova, rkey: first };
    a.post(SendOp::Write { remote }, &[a.sge(0, len as u32)]);
    a.post(SendOp::Read { remote }, &[a.sge(500_000, len as u32)]);
    run(&a, &b, &wire);
    assert!(a.outcomes().iter().all(|(_, status)| status.is_success()));
    assert_eq!(a.bytes(500_000, len as usize), data);
    let pieces = [(2 * page + page / 2, page / 2), (7 * page, page), (5 * page, 100)];
    let there: Vec<u8> = pieces.iter().flat_map(|(at, len)| b.bytes(*at, *len)).collect();
    assert_eq!(there, data);
    assert_eq!(b.bytes(3 * page, 4 * page - 2 * page), vec![0; 2 * page], "the bytes between stay");

    b.post_recv(9, &[]);
    a.post(SendOp::SendInvalidate { rkey: first }, &[]);
    run(&a, &b, &wire);
    let received = b.completions();
    assert_eq!(
        (received[0].status, received[0].invalidated_rkey()),
        (WcStatus::Success, Some(first))
    );
    assert_eq!(a.outcomes(), [(WcOpcode::Send, WcStatus::Success)]);

    // A new registration of the same pages with the next key: the former key is stale.
    b.post(SendOp::RegMr { key: inc_rkey(first), access: Access::LOCAL_WRITE | REMOTE }, &[]);
    run(&a, &b, &wire);
    assert_eq!(b.outcomes(), [(WcOpcode::RegMr, WcStatus::Success)]);
    a.post(SendOp::Read { remote: Remote { rkey: inc_rkey(first), ..remote } }, &[a.sge(0, 8)]);
    a.post(SendOp::Write { remote }, &[a.sge(0, 8)]);
    run(&a, &b, &wire);
    let expected =
        [(WcOpcode::RdmaRead, WcStatus::Success), (WcOpcode::RdmaWrite, WcStatus::RemAccessErr)];
    assert_eq!(a.outcomes(), expected);
    assert_eq!(b.counter(Counter::AccessStaleKey), 1);
    b.device.memory().deregister(Lkey(key.0)).unwrap();
}

#[test]
fn the_owner_sends_from_and_receives_into_scattered_pages() {
    let (a, b, wire) = pair();
    let (key, iova, len) = mapped(&a, 4096);
    let access = Access::LOCAL_WRITE;
    a.post(SendOp::RegMr { key, access }, &[]);
    let sge = Sge { addr: iova, length: len as u32, lkey: Lkey(key.0) };
    b.write(0, &pattern(len as usize));
    a.post(SendOp::Read { remote: b.remote(0) }, &[sge]);
    let (write, sges) = (SendOp::Write { remote: b.remote(100_000) }, [sge]);
    let fenced = SendRequest { flags: SendFlags::FENCE, ..request(write, &sges) };
    a.post_request(a.qp, &fenced).unwrap();
    a.post(SendOp::LocalInv { rkey: key }, &[]);
    a.post(SendOp::Write { remote: b.remote(0) }, &[sge]);
    run(&a, &b, &wire);
    let expected = [
        (WcOpcode::RegMr, WcStatus::Success),
        (WcOpcode::RdmaRead, WcStatus::Success),
        (WcOpcode::LocalInv, WcStatus::Success),
        (WcOpcode::RdmaWrite, WcStatus::LocProtErr),
    ];
    assert_eq!(a.outcomes(), expected);
    assert_eq!(b.bytes(100_000, len as usize), pattern(len as usize));
}

#[test]
fn an_invalidation_that_the_key_does_not_allow_is_refused_and_counted() {
    type Make = fn(&Host) -> Rkey;
    let cases: [(&str, Make); 5] = [
        ("an ordinary region", |b| b.mr.rkey),
        ("a free region", |b| b.device.memory().alloc_fast(b.pd, 1).unwrap()),
        ("a type 1 window", |b| {
            let window = b.device.memory().alloc_mw(b.pd, MwType::Type1).unwrap();
            b.device.memory().bind(&bind(&bindable(b), window, 0, 10), b.pd.into()).unwrap()
        }),
        ("another domain's region", |b| {
            let (memory, pd) = (b.device.memory(), b.device.alloc_pd().unwrap());
            let key = memory.alloc_fast(pd, 1).unwrap();
            memory.map_fast_buffers(key, &[(&b.buffer, 0..10)], 4096, 0).unwrap();
            memory.register_fast(key, Access::REMOTE_READ, pd).unwrap();
            key
        }),
        ("nothing", |_| Rkey(0x1234_5678)),
    ];
    for (what, make) in cases {
        let (a, b, wire) = pair();
        let rkey = make(&b);
        b.post_recv(9, &[]);
        a.post(SendOp::SendInvalidate { rkey }, &[]);
        run(&a, &b, &wire);
        assert_eq!(a.outcomes(), [(WcOpcode::Send, WcStatus::RemInvReqErr)], "{what}");
        assert_eq!(b.counter(Counter::InvalidateRefused), 1, "{what}");
    }
}

#[test]
fn going_back_carries_nothing_out_twice_and_completions_keep_their_order() {
    let peer = Peer::new();
    let mr = bindable(&peer.end);
    let window = peer.end.device.memory().alloc_mw(peer.end.pd, MwType::Type2).unwrap();
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    peer.end.post(SendOp::BindMw(bind(&mr, window, 0, 100)), &[]);
    peer.end.post(SendOp::Send, &[peer.end.sge(0, 8)]);
    let sends = [(Opcode::RcSendOnly, 0, None), (Opcode::RcSendOnly, 1, None)];
    assert_eq!(peer.sent(), sends);
    assert_eq!(peer.end.outcomes(), [], "the bind waits for the SEND before it to complete");
    for _ in 0..3 {
        // A bound type 2 window cannot be bound again, so a second execution would fail.
        peer.answer(0, Syndrome::Nak(NakCode::PsnSequence));
        peer.advance_round_trip();
        assert_eq!(peer.sent(), sends);
    }
    peer.answer(0, Syndrome::ACK);
    assert_eq!(
        peer.end.outcomes(),
        [(WcOpcode::Send, WcStatus::Success), (WcOpcode::BindMw, WcStatus::Success)]
    );
    peer.answer(1, Syndrome::ACK);
    assert_eq!(peer.end.outcomes(), [(WcOpcode::Send, WcStatus::Success)]);
    assert_eq!(peer.state(), QpState::Rts);
}

/// IBTA 10.6.5.1 and 10.8.3.
#[test]
fn a_local_invalidate_waits_for_everything_before_it() {
    let peer = Peer::new();
    let end = &peer.end;
    let (key, iova, _) = mapped(end, 4096);
    end.post(SendOp::RegMr { key, access: Access::LOCAL_WRITE | REMOTE }, &[]);
    end.post(SendOp::Send, &[Sge { addr: iova, length: 8, lkey: Lkey(key.0) }]);
    end.post(SendOp::LocalInv { rkey: key }, &[]);
    end.post(SendOp::Send, &[end.sge(0, 8)]);
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 0, None)]);
    assert_eq!(end.device.memory().query_fast(key), Some((8, true)));
    peer.answer(0, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 0, None)], "it can still be sent again");
    peer.answer(0, Syndrome::ACK);
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 1, None)]);
    assert_eq!(end.device.memory().query_fast(key), Some((8, false)));
    let done: Vec<_> = end.outcomes().iter().map(|(opcode, _)| *opcode).collect();
    assert_eq!(done, [WcOpcode::RegMr, WcOpcode::Send, WcOpcode::LocalInv]);
}

/// Nothing wakes up an invalidation behind local operations but their own completion.
#[test]
fn invalidations_follow_local_operations_within_one_call() {
    let (a, b, wire) = pair();
    let access = Access::LOCAL_WRITE | REMOTE;
    let [first, second] = [(); 2].map(|()| mapped(&a, 4096).0);
    let register = [first, second].map(|key| SendOp::RegMr { key, access });
    let invalidate = [first, second].map(|rkey| SendOp::LocalInv { rkey });
    let operations = [register, invalidate, register, invalidate].concat();
    let list: Vec<_> = operations.iter().map(|op| request(*op, &[])).collect();
    a.device.post_send(a.clock.now(), a.qp, &list).unwrap();
    run(&a, &b, &wire);
    let opcodes = [WcOpcode::RegMr, WcOpcode::LocalInv, WcOpcode::RegMr, WcOpcode::LocalInv];
    let expected = opcodes.map(|opcode| [(opcode, WcStatus::Success); 2]);
    assert_eq!(a.outcomes(), expected.concat());

    // The one after a failed one is flushed.
    for _ in 0..2 {
        a.post_request(a.qp, &request(SendOp::LocalInv { rkey: Rkey(7) }, &[])).unwrap();
    }
    run(&a, &b, &wire);
    assert_eq!(a.statuses(), [WcStatus::LocQpOpErr, WcStatus::WrFlushErr]);
}

#[test]
fn fenced_binds_wait_for_reads_and_draining_begins_none() {
    let peer = Peer::new();
    let end = &peer.end;
    let mr = bindable(end);
    let window = end.device.memory().alloc_mw(end.pd, MwType::Type1).unwrap();
    let read = SendOp::Read { remote: Remote { addr: 0, rkey: Rkey(1) } };
    let fenced = SendOp::BindMw(bind(&mr, window, 0, 8));
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    let both = [request(read, &[]), SendRequest { flags, ..request(fenced, &[]) }];
    end.device.post_send(Time::ZERO, end.qp, &both).unwrap();
    assert_eq!(peer.sent(), [(Opcode::RcReadRequest, 0, None)]);
    assert!(end.device.memory().deregister(mr.lkey).is_ok(), "nothing is bound to it yet");

    let peer = Peer::new();
    let end = &peer.end;
    let mr = bindable(end);
    let window = end.device.memory().alloc_mw(end.pd, MwType::Type1).unwrap();
    peer.modify(state(QpState::Sqd), QpAttrMask::STATE);
    end.post(SendOp::BindMw(bind(&mr, window, 0, 8)), &[]);
    assert_eq!((peer.sent(), end.outcomes()), (vec![], vec![]));
    peer.modify(state(QpState::Rts), QpAttrMask::STATE);
    assert_eq!(peer.sent(), []);
    assert_eq!(end.outcomes(), [(WcOpcode::BindMw, WcStatus::Success)]);
    assert!(end.device.memory().deregister(mr.lkey).is_err());
}

#[test]
fn a_local_failure_waits_its_turn_and_flushes_the_rest() {
    let peer = Peer::new();
    let end = &peer.end;
    end.post(SendOp::Send, &[end.sge(0, 8)]);
    end.post(SendOp::RegMr { key: end.mr.rkey, access: Access::REMOTE_READ }, &[]);
    end.post(SendOp::Send, &[end.sge(0, 8)]);
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 0, None)]);
    assert_eq!(end.outcomes(), []);
    peer.answer(0, Syndrome::ACK);
    let expected = [
        (WcOpcode::Send, WcStatus::Success),
        (WcOpcode::RegMr, WcStatus::LocQpOpErr),
        (WcOpcode::Send, WcStatus::WrFlushErr),
    ];
    assert_eq!(end.outcomes(), expected);
    assert_eq!(peer.state(), QpState::Err);
    assert_eq!(peer.events(), [] as [QpEventType; 0]);
    assert_eq!(end.counter(Counter::LocalOpRefused), 1);
    end.post(SendOp::LocalInv { rkey: end.mr.rkey }, &[]);
    assert_eq!(end.outcomes(), [(WcOpcode::LocalInv, WcStatus::WrFlushErr)]);
}

#[test]
fn unsignalled_ones_make_no_completion_and_data_is_refused() {
    let peer = Peer::new();
    let end = &peer.end;
    let (key, ..) = mapped(end, 4096);
    let op = SendOp::RegMr { key, access: Access::REMOTE_READ };
    let request = SendRequest { flags: SendFlags::empty(), ..request(op, &[]) };
    end.post_request(end.qp, &request).unwrap();
    assert_eq!((peer.sent(), end.outcomes()), (vec![], vec![]));
    assert_eq!(end.device.memory().query_fast(key), Some((8, true)));
    let with_data = SendRequest { payload: Payload::Sges(&[end.sge(0, 8)]), ..request };
    let refused = end.post_request(end.qp, &with_data).unwrap_err();
    assert_eq!(refused, urxe_device::qp::work_request::PostError::NoData { given: 8 });
}
