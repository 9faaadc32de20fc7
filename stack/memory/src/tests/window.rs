//! Memory windows.

use super::*;
use std::sync::Arc;
use urxe_wire::Qpn;

const QP: Accessor = Accessor { pd: PD, qpn: Some(Qpn::masked(0x12)) };
const READ: Access = Access::REMOTE_READ;

fn region(memory: &Memory, access: Access) -> (Arc<Buffer>, Mr) {
    let buffer = Arc::new(Buffer::new(4096).unwrap());
    let mr = memory.register_buffer(PD, &buffer, 0..4096, 0x1000, access).unwrap();
    (buffer, mr)
}

fn bind(mr: &Mr, window: Rkey) -> Bind {
    Bind {
        window,
        new_rkey: inc_rkey(window),
        region: mr.lkey,
        addr: 0x1800,
        length: 16,
        access: READ,
    }
}

#[test]
fn a_window_of_a_handle_is_bound_whichever_of_its_keys_the_bind_names() {
    let memory = Memory::new(1, 16);
    let (_kept, mr) = region(&memory, ALL | Access::MW_BIND);
    let window = memory.alloc_mw_by_handle(PD, MwType::Type2).unwrap();
    // The bind before this one failed, so the window never had its key.
    let missed = inc_rkey(window);
    let key = memory.bind(&bind(&mr, missed), QP).unwrap();
    assert_eq!(key, inc_rkey(missed));
    assert_eq!(memory.pin(key.0, QP, READ, 0x1800, 16).map(drop), Ok(()));
    // All other rules are those of every window.
    assert_eq!(memory.bind(&bind(&mr, window), QP), Err(BindError::NotFree { key: window }));
}

/// IBTA C10-72, C10-73, C10-74, C10-75, o10-36.2.2, o10-37.2.30, o10-37.2.40.
#[test]
fn every_refused_bind_says_why() {
    let memory = Memory::new(1, 16);
    let (_kept, mr) = region(&memory, ALL | Access::MW_BIND);
    let (_kept_too, plain) = region(&memory, ALL);
    let (_kept_three, read_only) = region(&memory, READ | Access::MW_BIND);
    let zero_based = ALL | Access::MW_BIND | Access::ZERO_BASED;
    let (_kept_four, zero) = region(&memory, zero_based);
    let one = memory.alloc_mw(PD, MwType::Type1).unwrap();
    let two = memory.alloc_mw(PD, MwType::Type2).unwrap();
    let foreign = memory.alloc_mw(PdId(8), MwType::Type2).unwrap();
    let base = bind(&mr, one);
    let given = |access| Bind { access, ..base };
    let unknown = Access::MW_BIND;
    let out = |addr, length| {
        let error = BindError::OutOfBounds { addr, length, start: 0x1000, region_len: 4096 };
        (Bind { addr, length, ..base }, error)
    };
    let wrong = Rkey(one.0 ^ 1);
    let both = READ | Access::ZERO_BASED;
    let write = Access::REMOTE_WRITE;
    let no_mw = BindError::NeedsMwBind { granted: ALL };
    let no_write = BindError::NeedsLocalWrite { given: write, granted: read_only.access };
    let cases = [
        (Bind { window: wrong, ..base }, BindError::UnknownWindow { key: wrong }),
        (Bind { window: mr.rkey, ..base }, BindError::UnknownWindow { key: mr.rkey }),
        (Bind { region: Lkey(two.0), ..base }, BindError::UnknownRegion { lkey: Lkey(two.0) }),
        (Bind { region: Lkey(one.0), ..base }, BindError::UnknownRegion { lkey: Lkey(one.0) }),
        (
            Bind { region: Lkey(mr.lkey.0 ^ 1), ..base },
            BindError::UnknownRegion { lkey: Lkey(mr.lkey.0 ^ 1) },
        ),
        (given(READ | unknown), BindError::Access { given: READ | unknown, unknown }),
        (bind(&mr, foreign), BindError::WindowPd { key: foreign, given: PD, owner: PdId(8) }),
        (given(both), BindError::ZeroBasedType1),
        (Bind { window: two, length: 0, ..base }, BindError::EmptyType2),
        (Bind { region: plain.lkey, ..base }, no_mw),
        (
            Bind { region: zero.lkey, addr: 0, ..base },
            BindError::ZeroBasedRegion { lkey: zero.lkey },
        ),
        (Bind { region: read_only.lkey, access: write, ..base }, no_write),
        out(0xfff, 2),
        out(0x1fff, 2),
        out(u64::MAX, 2),
        out(0x1000, u64::MAX),
    ];
    for (bind, expected) in cases {
        assert_eq!(memory.bind(&bind, QP), Err(expected), "{bind:?}");
    }
    assert_eq!(memory.bind(&bind(&mr, two), PD.into()), Err(BindError::NoQp));
    let bound = memory.bind(&bind(&mr, two), QP).unwrap();
    assert_eq!(memory.bind(&bind(&mr, bound), QP), Err(BindError::NotFree { key: bound }));
    for mr in [plain, read_only, zero] {
        memory.deregister(mr.lkey).expect("a bind that failed holds nothing");
    }
    assert_eq!(memory.deregister(mr.lkey), Err(DeregMrError::Busy { lkey: mr.lkey, windows: 1 }));
    memory.dealloc_mw(bound).unwrap();
    memory.deregister(mr.lkey).unwrap();
    assert_eq!(memory.dealloc_mw(bound), Err(DeallocMwError::UnknownKey { key: bound }));
    assert_eq!(memory.deregister(Lkey(one.0)), Err(DeregMrError::UnknownKey { lkey: Lkey(one.0) }));
}

/// IBTA 10.6.7.
#[test]
fn a_window_grants_its_own_bounds_and_rights_to_peers_only() {
    let memory = Memory::new(1, 16);
    let (buffer, mr) = region(&memory, ALL | Access::MW_BIND);
    let window = memory.alloc_mw(PD, MwType::Type1).unwrap();
    let pin = |key: Rkey, need, addr, len| memory.pin(key.0, QP, need, addr, len);
    let stale = |key: Rkey| Err(AccessError::StaleKey { key: key.0 });
    assert_eq!(pin(window, READ, 0x1800, 1).map(drop), stale(window), "not bound yet");
    let key = memory.bind(&bind(&mr, window), QP).unwrap();
    assert_eq!((key, key.0 & !0xff), (inc_rkey(window), window.0 & !0xff));
    buffer.write(0x800, b"sixteen bytes...").unwrap();
    let mut seen = [0; 16];
    pin(key, READ, 0x1800, 16).unwrap().read(0x1800, &mut seen).unwrap();
    assert_eq!(&seen, b"sixteen bytes...");
    for (addr, len) in [(0x17ff, 2), (0x1800, 17), (0x180f, 2)] {
        assert!(matches!(pin(key, READ, addr, len), Err(AccessError::OutOfBounds { .. })));
    }
    assert!(matches!(pin(key, Access::REMOTE_WRITE, 0x1800, 1), Err(AccessError::Denied { .. })));
    assert_eq!(pin(key, READ, 0x1800, 1).unwrap().write(0x1800, &[1]), Err(Fault::ReadOnly));
    for local in [Access::empty(), Access::LOCAL_WRITE] {
        assert_eq!(pin(key, local, 0x1800, 1).map(drop), Err(AccessError::Window { key: key.0 }));
    }
    // The window is bound again, elsewhere and for writing: the former key and its memory are no
    // longer accessible.
    let anew = Bind { addr: 0x1000, access: ALL, ..bind(&mr, key) };
    let next = memory.bind(&anew, QP).unwrap();
    assert_eq!(pin(key, READ, 0x1800, 1).map(drop), stale(key));
    pin(next, Access::REMOTE_WRITE, 0x1000, 16)
        .unwrap()
        .write(0x1000, b"sixteen others..")
        .unwrap();
    assert_eq!(
        pin(next, Access::REMOTE_ATOMIC, 0x1000, 8).unwrap().fetch_add(0x1000, 0).map(drop),
        Ok(())
    );
    buffer.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"sixteen others..");
    assert_eq!(memory.query(Lkey(next.0)), None, "a window is no region");
    assert_eq!(memory.deregister(mr.lkey), Err(DeregMrError::Busy { lkey: mr.lkey, windows: 1 }));
    memory.bind(&Bind { length: 0, ..bind(&mr, next) }, QP).unwrap();
    memory.deregister(mr.lkey).unwrap();
    assert_eq!(memory.count_in(PD), 1);
}

/// IBTA 10.6.5 and 10.6.7.1.
#[test]
fn type_2_windows_are_invalidated_by_their_queue_pair_only() {
    let memory = Memory::new(1, 16);
    let (_buffer, mr) = region(&memory, ALL | Access::MW_BIND);
    let other = Accessor { qpn: Some(Qpn::masked(0x13)), ..QP };
    let window = memory.alloc_mw(PD, MwType::Type2).unwrap();
    let key =
        memory.bind(&Bind { access: READ | Access::ZERO_BASED, ..bind(&mr, window) }, QP).unwrap();
    assert!(memory.pin(key.0, QP, READ, 0, 16).is_ok());
    let owner = Qpn::masked(0x12);
    let wrong_qp = Err(AccessError::WrongQp { key: key.0, owner });
    assert_eq!(memory.pin(key.0, other, READ, 0, 16).map(drop), wrong_qp);
    assert_eq!(memory.pin(key.0, PD, READ, 0, 16).map(drop), wrong_qp);
    for who in [Invalidator::Local, Invalidator::Peer] {
        assert_eq!(
            memory.invalidate(key, other, who),
            Err(InvalidateError::WrongQp { rkey: key, owner })
        );
        assert_eq!(
            memory.invalidate(window, QP, who),
            Err(InvalidateError::Stale { rkey: window })
        );
    }
    memory.invalidate(key, QP, Invalidator::Peer).unwrap();
    assert_eq!(
        memory.pin(key.0, QP, READ, 0, 16).map(drop),
        Err(AccessError::StaleKey { key: key.0 })
    );
    for who in [Invalidator::Local, Invalidator::Peer] {
        assert_eq!(memory.invalidate(key, QP, who), Err(InvalidateError::Stale { rkey: key }));
    }
    let again = memory.bind(&bind(&mr, key), other).unwrap();
    memory.unbind_all_of(owner);
    assert!(
        memory.pin(again.0, other, READ, 0x1800, 1).is_ok(),
        "another's queue pair was destroyed"
    );
    memory.unbind_all_of(Qpn::masked(0x13));
    memory.deregister(mr.lkey).unwrap();
    let one = memory.alloc_mw(PD, MwType::Type1).unwrap();
    assert_eq!(
        memory.invalidate(one, QP, Invalidator::Local),
        Err(InvalidateError::Type1 { rkey: one })
    );
}

/// IBTA 10.6.7.2.6.
#[test]
fn a_revoked_region_takes_its_windows_bindings_with_it() {
    let memory = Memory::new(1, 16);
    let (_kept, mr) = region(&memory, ALL | Access::MW_BIND);
    let (_other, stays) = region(&memory, ALL | Access::MW_BIND);
    let [one, two, three] = [MwType::Type1, MwType::Type2, MwType::Type2]
        .map(|kind| memory.alloc_mw(PD, kind).unwrap());
    let bound = [(mr, one), (mr, two), (stays, three)]
        .map(|(mr, window)| memory.bind(&bind(&mr, window), QP).unwrap());
    assert!(matches!(memory.deregister(mr.lkey), Err(DeregMrError::Busy { windows: 2, .. })));
    assert_eq!(memory.revoke(mr.lkey), Ok(()));
    assert_eq!(memory.revoke(mr.lkey), Err(DeregMrError::UnknownKey { lkey: mr.lkey }));
    let reachable = bound.map(|key| memory.pin(key.0, QP, READ, 0x1800, 16).is_ok());
    assert_eq!(reachable, [false, false, true]);
    // A window that lost its binding can be bound again.
    memory.bind(&bind(&stays, bound[1]), QP).unwrap();
}

#[test]
fn windows_have_a_limit_and_free_slots_are_used_again() {
    let limits = MemoryLimits { max_mr: 1, max_mr_size: 4096, max_mw: 2, max_pages: 4, max_dm: 0 };
    let memory = Memory::with_limits(1, limits, CopyMode::Direct);
    let first = memory.alloc_mw(PD, MwType::Type1).unwrap();
    memory.alloc_mw(PD, MwType::Type2).unwrap();
    assert_eq!(memory.alloc_mw(PD, MwType::Type2), Err(AllocMwError::TooMany { max: 2 }));
    memory.dealloc_mw(first).unwrap();
    for _ in 0..1000 {
        let window = memory.alloc_mw(PD, MwType::Type1).unwrap();
        assert_ne!(window, first);
        memory.dealloc_mw(window).unwrap();
    }
    assert_eq!((memory.count_windows(), memory.count(), memory.count_in(PD)), (1, 0, 1));
    assert_eq!(inc_rkey(Rkey(0x1234_56ff)), Rkey(0x1234_5600));
}

#[test]
fn binding_and_unbinding_while_peers_read_never_shows_the_wrong_bytes() {
    let memory = Memory::new(1, 16);
    let (buffer, mr) = region(&memory, ALL | Access::MW_BIND);
    buffer.write(0, &[1; 2048]).unwrap();
    buffer.write(2048, &[2; 2048]).unwrap();
    let window = memory.alloc_mw(PD, MwType::Type2).unwrap();
    let keys = [Rkey(window.0 & !0xff | 1), Rkey(window.0 & !0xff | 2)];
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (key, byte) in [(keys[0], 1), (keys[1], 2)] {
            let (memory, stop) = (&memory, &stop);
            scope.spawn(move || {
                let mut seen = [0; 2048];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(pin) = memory.pin(key.0, QP, READ, 0, 2048) {
                        pin.read(0, &mut seen).unwrap();
                        assert_eq!(seen, [byte; 2048]);
                    }
                }
            });
        }
        let mut key = window;
        for round in 0..4000 {
            let half = round % 2;
            let (addr, new_rkey) = (0x1000 + 2048 * half as u64, keys[half]);
            let access = READ | Access::ZERO_BASED;
            let bind = Bind { window: key, new_rkey, region: mr.lkey, addr, length: 2048, access };
            key = memory.bind(&bind, QP).unwrap();
            memory.invalidate(key, QP, Invalidator::Peer).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    memory.deregister(mr.lkey).unwrap();
}
