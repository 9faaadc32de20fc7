//! Fast registration, and further cases of on-demand regions: prefetching, the whole address space.

use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::sync::Arc;
use urxe_wire::Qpn;

const QP: Accessor = Accessor { pd: PD, qpn: None };

fn buffer(pages: usize) -> Arc<Buffer> {
    Arc::new(Buffer::new(pages * 4096).unwrap())
}

#[test]
fn every_refused_mapping_says_why() {
    let memory = Memory::new(1, 16);
    let (kept, mr) = (buffer(8), buffer(1));
    let region = memory.register_buffer(PD, &mr, 0..4096, 0, ALL).unwrap();
    let key = memory.alloc_fast(PD, 4).unwrap();
    let at = |offset: usize| kept.addr() as usize + offset;
    let map = |parts: &[std::ops::Range<usize>], page_size, iova| {
        let parts: Vec<_> = parts.iter().map(|range| (&kept, range.clone())).collect();
        memory.map_fast_buffers(key, &parts, page_size, iova)
    };
    let gap =
        |index, offset, len| Err(MapError::Gap { index, addr: at(offset), len, page_size: 4096 });
    let one = std::slice::from_ref(&(0..4096));
    assert_eq!(map(&[], 4096, 0), Err(MapError::Empty));
    assert_eq!(map(&[0..4096, 5..5], 4096, 0), Err(MapError::Empty));
    for page_size in [0, 1, 2048, 4097, 12288] {
        assert_eq!(map(one, page_size, 0), Err(MapError::PageSize { given: page_size }));
    }
    assert_eq!(map(&[0..4000, 4096..8192], 4096, 0), gap(0, 0, 4000));
    assert_eq!(map(&[0..4096, 5000..8192], 4096, 0), gap(1, 5000, 3192));
    assert_eq!(map(&[0..4096, 4096..8000, 8192..9000], 4096, 0), gap(1, 4096, 3904));
    let five = [100..4096, 4096..5 * 4096];
    assert_eq!(map(&five, 4096, 100), Err(MapError::TooManyPages { given: 5, allowed: 4 }));
    let off = MapError::IovaOffset { addr: at(100), iova: 0, page_size: 4096 };
    assert_eq!(map(std::slice::from_ref(&(100..200)), 4096, 0), Err(off));
    let iova = u64::MAX - 4095;
    assert_eq!(
        map(&[0..4096, 4096..4097], 4096, iova),
        Err(MapError::IovaWraps { iova, len: 4097 })
    );
    let outside = MapError::OutsideBuffer { index: 0, start: 0, end: 40_000, len: 8 * 4096 };
    assert_eq!(map(std::slice::from_ref(&(0..40_000)), 4096, 0), Err(outside));
    assert_eq!(
        memory.map_fast_buffers(region.rkey, &[(&kept, 0..1)], 4096, 0),
        Err(MapError::UnknownKey { key: region.rkey })
    );
    assert_eq!(
        memory.register_fast(key, Access::REMOTE_READ, PD),
        Err(FastRegError::NotMapped { key })
    );
    assert_eq!(memory.alloc_fast(PD, 0), Err(AllocMrError::Pages { given: 0, allowed: 512 }));
    assert_eq!(memory.alloc_fast(PD, 513), Err(AllocMrError::Pages { given: 513, allowed: 512 }));
}

/// Each page of the file is a hole, so the buffer takes addresses only.
#[test]
fn parts_with_more_bytes_than_a_number_counts_are_too_many_pages() {
    const LEN: usize = 1 << 45;
    const PARTS: usize = 1 << 19;
    let file = memfd_create("large", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, LEN as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let large = match Buffer::of_file(&file, 0, LEN) {
        Ok(large) => Arc::new(large),
        Err(error) => return eprintln!("skipped: needs 32 TiB of addresses: {error}"),
    };
    let memory = Memory::new(1, 16);
    let key = memory.alloc_fast(PD, 4).unwrap();
    let parts = vec![(&large, 0..LEN); PARTS + 1];
    let refused = memory.map_fast_buffers(key, &parts, 4096, 0);
    assert!(matches!(refused, Err(MapError::TooManyPages { allowed: 4, .. })), "{refused:?}");
}

/// IBTA 10.6.4.
#[test]
fn a_registration_makes_valid_what_was_mapped_last() {
    let memory = Memory::new(1, 16);
    let kept = buffer(4);
    let key = memory.alloc_fast(PD, 2).unwrap();
    memory.map_fast_buffers(key, &[(&kept, 0..10)], 4096, 0).unwrap();
    assert!(matches!(
        memory.pin(key.0, QP, Access::REMOTE_READ, 0, 1),
        Err(AccessError::StaleKey { .. })
    ));
    let other = PdId(5);
    let wrong_pd = FastRegError::WrongPd { key, given: other, owner: PD };
    assert_eq!(memory.register_fast(key, ALL, other), Err(wrong_pd));
    for access in [Access::REMOTE_WRITE, Access::ON_DEMAND, ALL | Access::HUGETLB] {
        let refused = memory.register_fast(key, access, PD);
        assert!(matches!(refused, Err(FastRegError::Access { .. })), "{refused:?}");
    }
    memory.register_fast(key, ALL, PD).unwrap();
    assert_eq!(
        memory.register_fast(inc_rkey(key), ALL, PD),
        Err(FastRegError::NotFree { key: inc_rkey(key) })
    );
    // A mapping during the valid time takes effect with the next registration.
    memory.map_fast_buffers(key, &[(&kept, 4096..4100)], 4096, 4096).unwrap();
    memory.pin(key.0, QP, Access::REMOTE_WRITE, 0, 10).unwrap().write(0, b"first page").unwrap();
    memory.invalidate(key, QP, Invalidator::Local).unwrap();
    memory.invalidate(key, QP, Invalidator::Local).expect("free already, as with rdma_rxe");
    assert_eq!(
        memory.invalidate(key, QP, Invalidator::Peer),
        Err(InvalidateError::Stale { rkey: key })
    );
    let next = inc_rkey(key);
    memory.register_fast(next, ALL | Access::ZERO_BASED, PD).unwrap();
    memory.pin(next.0, QP, Access::REMOTE_WRITE, 0, 4).unwrap().write(0, b"next").unwrap();
    assert!(matches!(
        memory.pin(key.0, QP, Access::REMOTE_READ, 0, 1),
        Err(AccessError::StaleKey { .. })
    ));
    let mut seen = [0; 10];
    kept.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"first page");
    kept.read(4096, &mut seen).unwrap();
    assert_eq!(&seen[..5], b"next\0");
    assert_eq!(memory.query(Lkey(next.0)).map(|mr| (mr.iova, mr.len)), Some((0, 4)));
    let watch = Arc::downgrade(&kept);
    drop(kept);
    assert!(watch.upgrade().is_some(), "kept for the mapping");
    memory.deregister(Lkey(key.0)).expect("of the key the low byte does not matter");
    assert!(watch.upgrade().is_none());
    assert_eq!((memory.count(), memory.count_in(PD)), (0, 0));
}

/// CVE-2026-46325: the kernel's `rdma_rxe` computed addresses with the page size of the system, not
/// of the region. The pieces are those of its report: a part of a page, and a page before it.
#[test]
fn addresses_follow_the_page_size_of_the_region() {
    for page_size in [4096, 8192, 65536] {
        let memory = Memory::new(1, 16);
        let kept = buffer(4 * page_size / 4096);
        // Offset of the first page boundary in the buffer.
        let start = (kept.addr() as usize).next_multiple_of(page_size) - kept.addr() as usize;
        let (second, first) = (start, start + 2 * page_size);
        let tail = first + page_size - 0x800..first + page_size;
        let key = memory.alloc_fast(PD, 4).unwrap();
        let iova = (8 * page_size - 0x800) as u64;
        let parts = [(&kept, tail.clone()), (&kept, second..second + page_size)];
        memory.map_fast_buffers(key, &parts, page_size, iova).unwrap();
        memory.register_fast(key, ALL, PD).unwrap();
        let write = |at: u64, bytes: &[u8]| {
            let len = bytes.len() as u64;
            let pin = memory.pin(key.0, QP, Access::REMOTE_WRITE, iova + at, len).unwrap();
            pin.write(iova + at, bytes).unwrap();
        };
        // The middle of the second page, and across the boundary.
        write(0x810, b"second");
        write(0x7fc, b"lastnext");
        write(0x800 + page_size as u64 - 3, b"end");
        let seen = |at: usize, len: usize| {
            let mut bytes = vec![0; len];
            kept.read(at, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(seen(second + 0x10, 6), b"second", "pages of {page_size}");
        assert_eq!(seen(tail.end - 4, 4), b"last");
        assert_eq!(
            (seen(second, 4), seen(second + page_size - 3, 3)),
            (b"next".into(), b"end".into())
        );
        let written = 6 + 8 + 3;
        let all = seen(0, kept.len());
        assert_eq!(all.iter().filter(|byte| **byte != 0).count(), written, "nowhere else");
    }
}

#[test]
fn windows_hold_a_fast_region_valid() {
    let memory = Memory::new(1, 16);
    let kept = buffer(4);
    let key = memory.alloc_fast(PD, 2).unwrap();
    memory.map_fast_buffers(key, &[(&kept, 4000..4096), (&kept, 8192..8292)], 4096, 4000).unwrap();
    memory.register_fast(key, ALL | Access::MW_BIND, PD).unwrap();
    let window = memory.alloc_mw(PD, MwType::Type1).unwrap();
    let bind =
        Bind { window, new_rkey: window, region: Lkey(key.0), addr: 4090, length: 20, access: ALL };
    memory.bind(&bind, QP).unwrap();
    memory
        .pin(window.0, QP, Access::REMOTE_WRITE, 4090, 20)
        .unwrap()
        .write(4090, b"across the two pages")
        .unwrap();
    let (mut one, mut two) = ([0; 6], [0; 14]);
    kept.read(4090, &mut one).unwrap();
    kept.read(8192, &mut two).unwrap();
    assert_eq!((&one, &two), (b"across", b" the two pages"));
    let bound = Err(InvalidateError::Bound { rkey: key, windows: 1 });
    assert_eq!(memory.invalidate(key, QP, Invalidator::Local), bound);
    assert!(matches!(memory.deregister(Lkey(key.0)), Err(DeregMrError::Busy { .. })));
    memory.dealloc_mw(window).unwrap();
    memory.invalidate(key, QP, Invalidator::Peer).unwrap();
}

#[test]
fn a_programs_pages_are_faulted_in_or_refused() {
    let memory = Memory::new(1, 16);
    let pages = Pages::new(4);
    pages.protect(1, MprotectFlags::READ);
    pages.unmap(3);
    let key = memory.alloc_fast(PD, 4).unwrap();
    let size = Pages::size();
    let map = |index: usize, writable| {
        let pieces =
            [Piece { addr: pages.page(2), len: size }, Piece { addr: pages.page(index), len: 100 }];
        // SAFETY: the pages stay until the table is dropped, and no reference to them exists.
        unsafe { memory.map_fast(key, &pieces, size, 0, writable) }
    };
    let (addr, len) = (pages.page(3) as usize, 100);
    assert_eq!(map(3, false), Err(MapError::NotMapped { addr, len }));
    let addr = pages.page(1) as usize;
    assert_eq!(map(1, true), Err(MapError::NotAccessible { addr, len, write: true }));
    map(1, false).unwrap();
    let refused = memory.register_fast(key, Access::LOCAL_WRITE, PD);
    assert!(matches!(refused, Err(FastRegError::Access { .. })), "{refused:?}");
    memory.register_fast(key, Access::REMOTE_READ, PD).unwrap();
    let pin = memory.pin(key.0, QP, Access::REMOTE_READ, 0, (size + 100) as u64).unwrap();
    assert_eq!(pin.read(size as u64 - 1, &mut [9; 101]), Ok(()));
    assert_eq!(pin.write(0, &[1]), Err(Fault::ReadOnly));
}

#[test]
fn the_whole_address_space_is_one_region() {
    let memory = Memory::new(1, 16);
    let everything = |access| {
        // SAFETY: this test uses only its own pages, and unmapped addresses.
        unsafe { memory.register(PD, null_mut(), usize::MAX, 77, access) }
    };
    let demand = ALL | Access::ON_DEMAND;
    assert_eq!(everything(ALL), Err(RegMrError::NotOnDemand));
    assert_eq!(everything(demand | Access::ZERO_BASED), Err(RegMrError::NotOnDemand));
    let mr = everything(demand | Access::MW_BIND).unwrap();
    assert_eq!((mr.iova, mr.len), (0, usize::MAX));
    let pages = Pages::new(2);
    let at = |page| pages.page(page) as u64;
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, at(0), 8).unwrap();
    pin.write(at(0), b"anywhere").unwrap();
    assert_eq!(pin.fetch_add(at(1), 4), Ok(0));
    assert_eq!(pin.fetch_add(at(1), 4), Ok(4));
    pages.unmap(1);
    assert_eq!(pin.read(at(1), &mut [0]), Err(Fault::NotMapped { addr: at(1), len: 1 }));
    assert_eq!(pin.fetch_add(at(1), 4), Err(Fault::NotMapped { addr: at(1), len: 8 }));
    for addr in [0, 4096, u64::MAX - 7] {
        let fault = pin.write(addr, &[1; 7]).unwrap_err();
        assert!(matches!(fault, Fault::NotMapped { .. }), "{addr:#x}: {fault:?}");
    }
    drop(pin);
    let window = memory.alloc_mw(PD, MwType::Type2).unwrap();
    let access = Access::REMOTE_READ | Access::ZERO_BASED;
    let bind = Bind { window, new_rkey: window, region: mr.lkey, addr: at(0), length: 8, access };
    let by = Accessor { qpn: Some(Qpn::masked(5)), ..QP };
    memory.bind(&bind, by).unwrap();
    let mut seen = [0; 8];
    memory.pin(window.0, by, Access::REMOTE_READ, 0, 8).unwrap().read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"anywhere");
    memory.dealloc_mw(window).unwrap();
    memory.deregister(mr.lkey).unwrap();
    // Without remote flags, the key corresponds to a local DMA key.
    let mr = everything(Access::LOCAL_WRITE | Access::ON_DEMAND).unwrap();
    assert!(memory.pin(mr.lkey.0, PD, Access::LOCAL_WRITE, at(0), 8).is_ok());
    assert!(matches!(
        memory.pin(mr.rkey.0, PD, Access::REMOTE_READ, at(0), 8),
        Err(AccessError::Denied { .. })
    ));
}

/// Returns which pages are present, without access to them.
fn present(pages: &Pages) -> Vec<bool> {
    let mut found = vec![0_u8; pages.len() / Pages::size()];
    // SAFETY: only asks, about a mapping of so many pages; the vector has a byte for each.
    let asked = unsafe { libc::mincore(pages.base.cast(), pages.len(), found.as_mut_ptr()) };
    assert_eq!(asked, 0);
    found.iter().map(|page| page & 1 == 1).collect()
}

#[test]
fn prefetching_makes_the_pages_present_that_it_names_and_no_others() {
    let size = Pages::size() as u64;
    for (advice, due) in [
        (Advice::Prefetch, [false, true, true, false]),
        (Advice::PrefetchWrite, [false, true, true, false]),
        (Advice::PrefetchNoFault, [false; 4]),
    ] {
        let (memory, pages) = (Memory::new(1, 16), Pages::new(4));
        // SAFETY: the pages stay as long as the table.
        let mr =
            unsafe { memory.register(PD, pages.base, pages.len(), 0, ALL | Access::ON_DEMAND) }
                .unwrap();
        assert_eq!(present(&pages), [false; 4], "registering on demand brings none");
        let range = AdviseRange { addr: size + 5, len: size, lkey: mr.lkey };
        memory.advise(PD, advice, &[range]).unwrap();
        assert_eq!(present(&pages), due, "{advice:?}");
    }
}

#[test]
fn advice_is_checked_and_followed() {
    let memory = Memory::new(1, 16);
    let pages = Pages::new(3);
    pages.unmap(2);
    let size = Pages::size() as u64;
    let register = |access| {
        // SAFETY: the pages stay as long as the table, or are on demand.
        unsafe { memory.register(PD, pages.base, 2 * size as usize, 0, access) }.unwrap()
    };
    let demand = register(ALL | Access::ON_DEMAND);
    let read = Access::REMOTE_READ | Access::ON_DEMAND;
    // SAFETY: on demand.
    let holed = unsafe { memory.register(PD, pages.base, pages.len(), 0, read) };
    let (holed, plain) = (holed.unwrap(), register(ALL));
    let range = |mr: &Mr, addr, len| AdviseRange { addr, len, lkey: mr.lkey };
    let advise = |advice, ranges: &[AdviseRange]| {
        memory.advise(PD, advice, ranges).map_err(|error| error.errno())
    };
    use Advice::{Prefetch, PrefetchNoFault, PrefetchWrite};
    for advice in [Prefetch, PrefetchWrite, PrefetchNoFault] {
        assert_eq!(advise(advice, &[range(&demand, 5, size), range(&demand, 0, 0)]), Ok(()));
        assert_eq!(advise(advice, &[]), Err(libc::EINVAL));
        assert_eq!(advise(advice, &[range(&demand, 5, 2 * size)]), Err(libc::EFAULT));
        assert_eq!(advise(advice, &[range(&plain, 0, 1)]), Err(libc::EOPNOTSUPP));
        let stale = AdviseRange { lkey: Lkey(demand.lkey.0 ^ 1), ..range(&demand, 0, 1) };
        assert_eq!(advise(advice, &[range(&demand, 0, 1), stale]), Err(libc::ENOENT));
        let foreign = memory.advise(PdId(3), advice, &[range(&demand, 0, 1)]);
        assert_eq!(foreign.map_err(|error| error.errno()), Err(libc::EPERM));
    }
    assert_eq!(advise(Prefetch, &[range(&holed, 0, 3 * size)]), Err(libc::EFAULT));
    assert_eq!(advise(PrefetchNoFault, &[range(&holed, 0, 3 * size)]), Ok(()));
    assert_eq!(advise(PrefetchWrite, &[range(&holed, 0, 1)]), Err(libc::EPERM));
    let window = memory.alloc_mw(PD, MwType::Type1).unwrap();
    let bindable = register(ALL | Access::ON_DEMAND | Access::MW_BIND);
    let bind =
        Bind { window, new_rkey: window, region: bindable.lkey, addr: 0, length: 1, access: ALL };
    memory.bind(&bind, QP).unwrap();
    let by_window = AdviseRange { addr: 0, len: 1, lkey: Lkey(window.0) };
    assert_eq!(advise(Prefetch, &[by_window]), Err(libc::EINVAL));
}
