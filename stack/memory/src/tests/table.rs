//! Registration, keys, rights, bounds.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU8;
use urxe_wire::Payload;

#[test]
fn a_peer_writes_and_reads_what_it_may() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(10_000).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    assert_eq!(mr.lkey.0, mr.rkey.0);
    let data: Vec<u8> = (0..5000_u32).map(|i| (i * 7 % 251) as u8).collect();
    {
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova + 123, 5000).unwrap();
        pin.write(mr.iova + 123, &data).unwrap();
        let mut back = vec![0; 5000];
        pin.read(mr.iova + 123, &mut back).unwrap();
        assert_eq!(back, data);
    }
    let mut seen = vec![0xa5; 5002];
    buffer.read(122, &mut seen).unwrap();
    assert_eq!((seen[0], &seen[1..5001], seen[5001]), (0, data.as_slice(), 0));
    memory.deregister(mr.lkey).unwrap();
    assert_eq!(memory.query(mr.lkey), None);
}

#[test]
fn every_small_size_and_alignment_lands_exactly() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(64).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 64).unwrap();
    for len in 0..=17 {
        for offset in 0..=24_u64 {
            buffer.write(0, &[0xa5; 64]).unwrap();
            let data: Vec<u8> = (0..len).map(|i| i as u8 + 1).collect();
            pin.write(mr.iova + offset, &data).unwrap();
            let mut expected = [0xa5; 64];
            expected[offset as usize..][..len].copy_from_slice(&data);
            let mut seen = [0; 64];
            buffer.read(0, &mut seen).unwrap();
            assert_eq!(seen, expected, "write of {len} at {offset}");
            let mut back = vec![0; len];
            pin.read(mr.iova + offset, &mut back).unwrap();
            assert_eq!(back, data, "read of {len} at {offset}");
            // To and from memory that another process can change.
            let shared: Vec<_> = (0..len).map(|_| AtomicU8::new(0xa5)).collect();
            pin.read(mr.iova + offset, &shared[..]).unwrap();
            pin.write(mr.iova, &[0; 41]).unwrap();
            pin.write(mr.iova + offset, Payload::Shared(&shared)).unwrap();
            buffer.read(offset as usize, &mut back).unwrap();
            assert_eq!(back, data, "both ways, {len} at {offset}");
        }
    }
}

#[test]
fn the_first_bounds_are_exact_and_wrapping_lengths_fail() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(100).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    let pin = |addr, len| memory.pin(mr.rkey.0, PD, Access::REMOTE_READ, addr, len).map(drop);
    assert_eq!(pin(mr.iova, 100), Ok(()));
    assert_eq!(pin(mr.iova + 99, 1), Ok(()));
    assert_eq!(pin(mr.iova + 100, 0), Ok(()));
    for (addr, len) in [
        (mr.iova, 101),
        (mr.iova - 1, 1),
        (mr.iova - 1, 2),
        (mr.iova + 99, 2),
        (mr.iova + 100, 1),
        (mr.iova + 101, 0),
        (mr.iova + 1, u64::MAX),
        (mr.iova + 50, u64::MAX - 20),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (0, mr.iova + 1),
    ] {
        let key = mr.rkey.0;
        let expected = AccessError::OutOfBounds { key, addr, len, start: mr.iova, region_len: 100 };
        assert_eq!(pin(addr, len), Err(expected));
    }
}

#[test]
fn a_pin_checks_again_what_it_is_asked_to_touch() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(100).unwrap();
    let mr = register(&memory, PD, &buffer, Access::REMOTE_READ);
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_READ, mr.iova, 1).unwrap();
    assert_eq!(pin.write(mr.iova, &[1]), Err(Fault::ReadOnly));
    assert_eq!(pin.fetch_add(mr.iova, 1), Err(Fault::ReadOnly));
    assert_eq!(
        pin.read(mr.iova + 99, &mut [0; 2]),
        Err(Fault::OutOfBounds { addr: mr.iova + 99, len: 2 })
    );
    assert_eq!(pin.write(mr.iova - 1, &[1]), Err(Fault::OutOfBounds { addr: mr.iova - 1, len: 1 }));
    drop(pin);
    let mr = register(&memory, PD, &buffer, ALL);
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_ATOMIC, mr.iova, 1).unwrap();
    for addr in [mr.iova + 93, mr.iova + 96, mr.iova + 100, u64::MAX - 3] {
        assert_eq!(pin.fetch_add(addr, 1), Err(Fault::OutOfBounds { addr, len: 8 }));
    }
    for addr in [mr.iova + 1, mr.iova + 4, mr.iova + 7] {
        assert_eq!(pin.compare_swap(addr, 0, 1), Err(Fault::Misaligned { addr }));
    }
    assert_eq!(pin.compare_swap(mr.iova + 88, 0, 1), Ok(0));
}

#[test]
fn a_zero_based_region_starts_at_zero_and_aligns_by_both_addresses() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(64).unwrap();
    let access = ALL | Access::ZERO_BASED;
    // SAFETY: `buffer` outlives the use by `memory`.
    let mr = unsafe { memory.register(PD, buffer.addr().wrapping_add(4), 32, 0xdead_beef, access) }
        .unwrap();
    assert_eq!(mr.iova, 0);
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 0, 32).unwrap();
    pin.write(4, &7_u64.to_ne_bytes()).unwrap();
    assert_eq!(buffer.load_u64(8), Ok(7));
    assert_eq!(pin.fetch_add(0, 1), Err(Fault::Misaligned { addr: 0 }));
    assert_eq!(pin.fetch_add(4, 1), Err(Fault::Misaligned { addr: 4 }));
    assert!(memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 32, 1).is_err());
}

/// IBTA 10.6.3 and o10-38.
#[test]
fn registration_refuses_what_the_kernel_refuses() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(2 * Pages::size()).unwrap();
    let (base, at) = (buffer.addr(), buffer.addr().addr());
    let iova = at as u64;
    let register = |addr, len, iova, access| {
        // SAFETY: `buffer` outlives `memory`; registrations outside the buffer are refused.
        unsafe { memory.register(PD, addr, len, iova, access) }
    };
    let empty = Access::empty();
    let checks = [
        (register(base, 0, iova, empty), RegMrError::ZeroLength),
        (register(base, usize::MAX, iova, empty), RegMrError::Wraps { addr: at, len: usize::MAX }),
        // The range ends at the last byte of the address space, but its last page would exceed it.
        (
            register(base, usize::MAX - at, iova, empty),
            RegMrError::Wraps { addr: at, len: usize::MAX - at },
        ),
        (
            register(base, 8192, u64::MAX - 4095, empty),
            RegMrError::IovaWraps { iova: u64::MAX - 4095, len: 8192 },
        ),
        (
            register(base, 8, iova + 8, empty),
            RegMrError::IovaOffset { addr: at, iova: iova + 8, page: Pages::size() },
        ),
        (
            register(base, 8, iova, Access::from_bits_retain(1 << 10 | 1)),
            RegMrError::UnknownAccess { given: 1 << 10 | 1, unknown: 1 << 10 },
        ),
        (
            register(base, 8, iova, Access::from_bits_retain(1 << 30)),
            RegMrError::UnknownAccess { given: 1 << 30, unknown: 1 << 30 },
        ),
        (
            register(base, 8, iova, Access::REMOTE_WRITE),
            RegMrError::NeedsLocalWrite { given: Access::REMOTE_WRITE },
        ),
        (
            register(base, 8, iova, Access::REMOTE_ATOMIC | Access::REMOTE_READ),
            RegMrError::NeedsLocalWrite { given: Access::REMOTE_ATOMIC | Access::REMOTE_READ },
        ),
    ];
    for (outcome, expected) in checks {
        assert_eq!(outcome, Err(expected));
        assert_eq!(expected.errno(), libc::EINVAL, "{expected}");
    }
    assert_eq!(memory.count(), 0);
    // Optional flags are ignored, and the end of the 64-bit range is usable.
    let optional = Access::from_bits_retain(1 << 29 | 1 << 20);
    let mr = register(base, 4096, u64::MAX - 4095, optional).unwrap();
    assert_eq!(mr.access, Access::RELAXED_ORDERING);
    assert!(memory.pin(mr.rkey.0, PD, empty, u64::MAX, 1).is_ok());
    assert!(memory.pin(mr.rkey.0, PD, empty, u64::MAX, 2).is_err());
}

#[test]
fn stale_keys_fail_and_no_live_key_repeats() {
    let memory = Memory::new(99, 8);
    let buffer = Buffer::new(8).unwrap();
    let mut stale = BTreeSet::new();
    // Enough rounds to use each of the slots (the limit and the quarantine) several times.
    for round in 0..1000 {
        let mr = register(&memory, PD, &buffer, ALL);
        assert_ne!(mr.lkey.0, 0);
        assert!(stale.insert(mr.lkey.0), "key {:#x} came back in round {round}", mr.lkey.0);
        memory.deregister(mr.lkey).unwrap();
        assert_eq!(memory.deregister(mr.lkey), Err(DeregMrError::UnknownKey { lkey: mr.lkey }));
    }
    let live = register(&memory, PD, &buffer, ALL);
    for key in stale {
        let outcome = memory.pin(key, PD, Access::empty(), live.iova, 1).map(drop);
        assert_eq!(outcome, Err(AccessError::UnknownKey { key }));
    }
    // Neighbours of a live key, in its low byte and above, are as unlikely as random keys.
    for bit in 0..32 {
        assert!(memory.pin(live.lkey.0 ^ (1 << bit), PD, Access::empty(), live.iova, 1).is_err());
    }
}

#[test]
fn a_registered_region_is_not_invalidated() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(8).unwrap();
    let mr = register(&memory, PD, &buffer, ALL);
    let (rkey, given, owner) = (mr.rkey, PdId(8), PD);
    assert_eq!(
        memory.invalidate(rkey, owner, Invalidator::Peer),
        Err(InvalidateError::OrdinaryRegion { rkey })
    );
    assert_eq!(
        memory.invalidate(rkey, given, Invalidator::Peer),
        Err(InvalidateError::WrongPd { rkey, given, owner })
    );
    assert_eq!(memory.query(mr.lkey), Some(mr), "it is as it was");
    memory.deregister(mr.lkey).unwrap();
    assert_eq!(
        memory.invalidate(rkey, owner, Invalidator::Peer),
        Err(InvalidateError::UnknownKey { rkey })
    );
}

/// Regions that end at the end of a heap block: an address sanitizer or valgrind detects a copy
/// beyond the end.
#[test]
fn copies_stay_inside_heap_blocks() {
    let memory = Memory::new(1, 16);
    for len in (1..=70).chain([4096, 5000]) {
        let layout = std::alloc::Layout::from_size_align(len, 8).unwrap();
        // SAFETY: the layout has a size. The block is this test's, and referred to by nothing.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!base.is_null());
        let iova = base.addr() as u64;
        for access in [ALL, ALL | Access::ON_DEMAND] {
            // SAFETY: the block is freed after the region is deregistered.
            let mr = unsafe { memory.register(PD, base, len, iova, access) }.unwrap();
            {
                let pin =
                    memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, iova, len as u64).unwrap();
                let data: Vec<u8> = (0..len).map(|i| (i % 255) as u8 + 1).collect();
                let mut back = vec![0; len];
                for (from, count) in
                    [(0, len), (0, 1), (len - 1, 1), (len / 2, len - len / 2), (0, len / 2)]
                {
                    let addr = iova + from as u64;
                    pin.write(addr, &data[from..from + count]).unwrap();
                    pin.read(addr, &mut back[..count]).unwrap();
                    assert_eq!(back[..count], data[from..from + count]);
                }
                let words = len as u64 / 8;
                if words > 0 {
                    pin.fetch_add(iova + 8 * (words - 1), 1).unwrap();
                }
                assert!(
                    pin.write(iova + 1, &data).is_err() && pin.read(iova + 1, &mut back).is_err()
                );
            }
            memory.deregister(mr.lkey).unwrap();
        }
        // SAFETY: allocated above with the same layout.
        unsafe { std::alloc::dealloc(base, layout) };
    }
}

#[test]
fn counts_and_limits() {
    let memory = Memory::new(1, 3);
    let buffer = Buffer::new(8).unwrap();
    let (one, two) = (PdId(1), PdId(2));
    let mrs = [one, one, two].map(|pd| register(&memory, pd, &buffer, ALL));
    assert_eq!((memory.count_in(one), memory.count_in(two), memory.count()), (2, 1, 3));
    let iova = buffer.addr().addr() as u64;
    // SAFETY: refused.
    let outcome = unsafe { memory.register(one, buffer.addr(), 8, iova, ALL) };
    assert_eq!(outcome, Err(RegMrError::TooMany { max: 3 }));
    assert_eq!(RegMrError::TooMany { max: 3 }.errno(), libc::ENOMEM);
    assert_eq!(memory.query(mrs[2].lkey), Some(mrs[2]));
    for mr in mrs {
        memory.deregister(mr.lkey).unwrap();
    }
    assert_eq!((memory.count_in(one), memory.count_in(two), memory.count()), (0, 0, 0));
}

#[test]
fn many_regions_live_at_once_in_many_segments() {
    let memory = Memory::new(5, u32::MAX);
    let buffer = Buffer::new(8 * 3000).unwrap();
    let mrs: Vec<Mr> = (0..3000)
        .map(|i| {
            let addr = buffer.addr().wrapping_add(8 * i);
            // SAFETY: `buffer` outlives `memory`.
            unsafe { memory.register(PD, addr, 8, addr.addr() as u64, ALL) }.unwrap()
        })
        .collect();
    let keys: BTreeSet<u32> = mrs.iter().map(|mr| mr.lkey.0).collect();
    assert_eq!(keys.len(), mrs.len());
    for (i, mr) in mrs.iter().enumerate() {
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 8).unwrap();
        pin.write(mr.iova, &(i as u64).to_ne_bytes()).unwrap();
    }
    for i in 0..mrs.len() {
        assert_eq!(buffer.load_u64(8 * i), Ok(i as u64));
    }
}

#[test]
fn the_same_seed_gives_the_same_keys() {
    let buffer = Buffer::new(8).unwrap();
    let keys = |seed| {
        let memory = Memory::new(seed, 64);
        [(); 64].map(|()| register(&memory, PD, &buffer, ALL).lkey)
    };
    assert_eq!(keys(3), keys(3));
    assert_ne!(keys(3), keys(4));
}

#[test]
fn pins_are_kept_until_cleared() {
    let memory = Memory::new(1, 16);
    let buffer = Buffer::new(64).unwrap();
    let mrs = [(); 6].map(|()| register(&memory, PD, &buffer, ALL));
    let mut pins = Pins::new(&memory);
    for mr in mrs.iter().chain(&mrs) {
        let pin = pins.access(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova + 8, 8).unwrap();
        assert!(pin.covers(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 64));
        assert!(!pin.covers(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, 65));
        assert!(!pin.covers(mr.rkey.0 ^ 1, PD, Access::REMOTE_WRITE, mr.iova, 64));
    }
    // A held pin is checked like a new one.
    let (mr, key) = (mrs[5], mrs[5].rkey.0);
    let mut check = |pd, need, addr| pins.access(key, pd, need, addr, 8).map(|_| ());
    assert!(matches!(check(PdId(8), ALL, mr.iova), Err(AccessError::WrongPd { .. })));
    assert!(matches!(check(PD, Access::MW_BIND, mr.iova), Err(AccessError::Denied { .. })));
    assert!(matches!(check(PD, ALL, mr.iova + 60), Err(AccessError::OutOfBounds { .. })));
    assert_eq!(check(PD, ALL, mr.iova), Ok(()));
    pins.clear();
    for mr in mrs {
        memory.deregister(mr.lkey).unwrap();
        assert!(pins.access(mr.rkey.0, PD, ALL, mr.iova, 1).is_err());
    }
}

#[test]
fn buffers_check_offsets() {
    let buffer = Buffer::new(16).unwrap();
    assert_eq!(
        (buffer.len(), buffer.is_empty(), buffer.addr().addr() % Pages::size()),
        (16, false, 0)
    );
    buffer.write(8, &[1; 8]).unwrap();
    assert_eq!(buffer.load_u8(15), Ok(1));
    assert_eq!(buffer.fetch_add_u64(8, 1), Ok(u64::from_ne_bytes([1; 8])));
    assert_eq!(buffer.compare_swap_u64(0, 0, 9), Ok(0));
    assert_eq!(buffer.compare_swap_u64(0, 0, 10), Ok(9));
    buffer.store_u64(0, 11).unwrap();
    assert_eq!(buffer.load_u64(0), Ok(11));
    let out = |offset, len| Err(BufferError::OutOfBounds { offset, len, buffer_len: 16 });
    assert_eq!(buffer.write(9, &[0; 8]), out(9, 8));
    assert_eq!(buffer.read(16, &mut [0]), out(16, 1));
    assert_eq!(buffer.read(usize::MAX, &mut [0; 2]), out(usize::MAX, 2));
    assert_eq!(buffer.load_u64(16).map(drop), out(16, 8));
    assert_eq!(buffer.load_u64(4), Err(BufferError::Misaligned { offset: 4 }));
    assert_eq!(buffer.read(16, &mut []), Ok(()));

    let empty = Buffer::new(0).unwrap();
    assert!(empty.is_empty());
    assert_eq!((empty.write(0, &[]), empty.read(0, &mut [])), (Ok(()), Ok(())));
    assert!(empty.write(0, &[1]).is_err());
    assert!(Buffer::new(usize::MAX).is_err());
}
