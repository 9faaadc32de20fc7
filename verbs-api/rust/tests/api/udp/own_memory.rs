//! Memory of the program: under one key for the whole address space, in fast-registration regions,
//! and with missing pages.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use urxe::*;

use crate::common::{ALL, End, LONG, connect, datagram_qp, failure, pair, pattern};

const PAGE: usize = 4096;

/// Mapped pages without a Rust object, which any thread may write.
struct Pages(NonNull<u8>, usize);

impl Pages {
    fn new(count: usize) -> Self {
        let (len, rights) = (count * PAGE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: this is a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(null_mut(), len, rights, MapFlags::PRIVATE) }.unwrap();
        Self(NonNull::new(base.cast()).unwrap(), len)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.1);
        // SAFETY: the address is inside the mapping or at its end.
        unsafe { self.0.add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.1);
        // SAFETY: the word is inside the mapping and aligned. Only atomics and the device access
        // it.
        unsafe { self.at(offset).cast().as_ref() }
    }

    fn unmap(&self, page: usize) {
        assert!((page + 1) * PAGE <= self.1);
        // SAFETY: the caller does not use these bytes any more.
        unsafe { munmap(self.at(page * PAGE).as_ptr().cast(), PAGE) }.unwrap();
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the owner drops the pages after their last use. Unmapping a hole is allowed.
        unsafe { munmap(self.0.as_ptr().cast(), self.1) }.unwrap();
    }
}

#[test]
fn a_local_dma_key_serves_any_memory_and_no_peer() {
    let (a, b) = pair(190);
    // SAFETY: all slices are those below.
    let keys = unsafe { (a.pd.local_dma_key(), b.pd.local_dma_key()) };
    let (here, there) = (keys.0.unwrap(), keys.1.unwrap());
    assert_eq!(here.access(), Access::LOCAL_WRITE | Access::ON_DEMAND);
    let (from, to) = (Pages::new(1), Pages::new(1));
    from.word(16).store(77, Ordering::Relaxed);
    // SAFETY: the pages stay until the requests have completed, and are accessed as atomics.
    let (source, target) = unsafe { (here.slice(from.at(16), 8), there.slice(to.at(24), 8)) };
    b.post_recv(target, 0);
    let _ = a.perform(SendRequest::send(source));
    let _ = b.complete();
    assert_eq!(to.word(24).load(Ordering::Acquire), 77);
    // Slices of this region are unsafe, so a number alone must not give access to it.
    let given = there.lkey().0;
    assert_eq!(b.pd.import_region(given).unwrap_err(), ImportError::OtherOwner { given });
    assert_eq!(
        a.status(SendRequest::write(a.slice(..8), there.remote(to.at(24), 8))),
        WcStatus::RemAccessErr
    );
    assert_eq!(to.word(24).load(Ordering::Acquire), 77);
}

#[test]
fn the_whole_address_space_is_reached_except_unmapped_pages() {
    let (a, b) = pair(191);
    let pages = Pages::new(3);
    // SAFETY: the only peer is this test, which accesses these pages only.
    let everything = unsafe { b.pd.register_everything(ALL) }.unwrap();
    let there = |offset| everything.remote(pages.at(offset), 8);
    let from = |value: u64| {
        a.region.store_u64(0, value).unwrap();
        a.slice(..8)
    };
    let _ = a.perform(SendRequest::write(from(5), there(8)));
    let _ = a.perform(SendRequest::fetch_add(from(0), there(8), 2));
    assert_eq!(a.region.load_u64(0).unwrap(), 5);
    assert_eq!(pages.word(8).load(Ordering::Acquire), 7);
    let _ = a.perform(SendRequest::atomic_write(from(9), there(16)));
    assert_eq!(pages.word(16).load(Ordering::Acquire), 9);
    pages.unmap(1);
    // The middle one of three pages is missing.
    assert_eq!(
        a.status(SendRequest::read(a.slice(..3 * PAGE), everything.remote(pages.at(0), 0))),
        WcStatus::RemAccessErr
    );
    assert_eq!(a.region.load_u64(8).unwrap(), 7, "what came before the hole");
    assert_eq!(b.device.counter(Counter::AccessNotMapped), 1);
}

#[test]
fn a_fast_region_takes_parts_of_several_regions_and_own_requests_go_from_and_to_it() {
    let (a, b) = pair(192);
    let parts = [b.pd.allocate(2 * PAGE, ALL).unwrap(), b.pd.allocate(PAGE, ALL).unwrap()];
    let mut region = b.pd.alloc_fast_region(4).unwrap();
    let gap = region.map_parts(&[(&parts[0], 0..PAGE + 1), (&parts[1], 0..PAGE)], 0x8000);
    assert!(matches!(gap, Err(MapError::Gap { .. })), "{gap:?}");
    region.map_parts(&[(&parts[0], 4000..2 * PAGE), (&parts[1], 0..100)], 0x8000 + 4000).unwrap();
    let len = 2 * PAGE - 4000 + 100;
    assert_eq!(region.remote().len, len as u64);
    let _ = b.perform(SendRequest::register(&region, Access::LOCAL_WRITE | Access::REMOTE_WRITE));
    // A WRITE of a peer stores its data in both parts.
    let bytes = pattern(len, 3);
    a.region.write(0, &bytes).unwrap();
    let _ = a.perform(SendRequest::write(a.slice(..len), region.remote()));
    let landed =
        [parts[0].read_vec(4000, 2 * PAGE - 4000).unwrap(), parts[1].read_vec(0, 100).unwrap()]
            .concat();
    assert_eq!(landed, bytes);
    // A READ of the owner does, too, and its SEND reads both parts.
    let other = pattern(len, 4);
    a.region.write(0, &other).unwrap();
    let _ = b.perform(SendRequest::read(region.slice(..).unwrap(), a.region.remote()));
    assert_eq!(parts[1].read_vec(0, 100).unwrap(), other[len - 100..]);
    a.post_recv(a.slice(8192..16384), 0);
    let _ = b.perform(SendRequest::send(region.slice(len - 200..).unwrap()));
    let _ = a.complete();
    assert_eq!(a.bytes(8192, 200), other[len - 200..]);
    assert!(matches!(region.slice(..len + 1), Err(SliceError::OutOfBounds { .. })));
}

#[test]
fn a_fast_region_takes_memory_of_the_program() {
    let (a, b) = pair(193);
    let pages = Pages::new(2);
    // SAFETY: the pages outlive the regions and are accessed as atomics.
    let (first, second) = unsafe {
        let register = |page| b.pd.register(pages.at(page * PAGE), PAGE, 0, ALL);
        (register(1).unwrap(), register(0).unwrap())
    };
    let mut region = b.pd.alloc_fast_region(2).unwrap();
    // SAFETY: as above.
    unsafe { region.map_foreign(&[(&first, 0..PAGE), (&second, 0..16)], 0x1_0000) }.unwrap();
    // SAFETY: as above.
    let outside = unsafe { region.map_foreign(&[(&first, 0..PAGE + 1)], 0) };
    assert!(matches!(outside, Err(MapError::OutsideBuffer { index: 0, .. })), "{outside:?}");
    let _ = b.perform(SendRequest::register(&region, Access::LOCAL_WRITE | Access::REMOTE_WRITE));
    a.region.store_u64(0, 1).unwrap();
    a.region.store_u64(8, 2).unwrap();
    let there = region.remote().slice(PAGE as u64 - 8..).unwrap();
    let _ = a.perform(SendRequest::write(a.slice(..16), there));
    assert_eq!(pages.word(2 * PAGE - 8).load(Ordering::Acquire), 1);
    assert_eq!(pages.word(0).load(Ordering::Acquire), 2);
}

#[test]
fn a_device_with_checked_copies_outlives_memory_that_was_unmapped_while_it_was_registered() {
    let checked = |net| {
        let device =
            Device::builder().checked_copies(true).open_address([127, 48, 194, net]).unwrap();
        End::on(device)
    };
    let (a, b) = (checked(1), checked(2));
    connect(&a.qp, &b.qp);
    let pages = Pages::new(2);
    // SAFETY: a device with checked copies tolerates the error under test, an unmapped page. The
    // other promises hold.
    let region = unsafe { b.pd.register(pages.at(0), 2 * PAGE, 0, ALL) }.unwrap();
    let write = |at: usize| {
        let there = region.remote().slice(at as u64..at as u64 + 8).unwrap();
        a.status(SendRequest::write(a.slice(..8), there))
    };
    assert_eq!(write(PAGE), WcStatus::Success);
    pages.unmap(1);
    assert_eq!(write(PAGE), WcStatus::RemAccessErr);
}

/// Binds `window` to `part` of a region of `b`. Drops `region`, after which the program may free
/// the memory. Asserts that `a` can write by the window before, and not after.
fn assert_dropping_ends_a_window<R>(
    (a, b): (&End, &End),
    region: R,
    part: impl Fn(&R) -> RegionSlice<'_>,
) {
    let mut window = b.pd.alloc_window().unwrap();
    let _ = b.perform(SendRequest::bind(&mut window, part(&region), Access::REMOTE_WRITE));
    let there = window.remote().unwrap();
    let _ = a.perform(SendRequest::write(a.slice(..8), there));
    drop(region);
    assert_eq!(a.status(SendRequest::write(a.slice(..8), there)), WcStatus::RemAccessErr);
}

#[test]
fn a_dropped_fast_region_of_foreign_memory_unbinds_its_windows() {
    let (a, b) = pair(198);
    let pages = Pages::new(1);
    // SAFETY: the pages outlive the region, and are accessed as atomics.
    let foreign =
        unsafe { b.pd.register(pages.at(0), PAGE, pages.at(0).as_ptr() as u64, ALL) }.unwrap();
    let mut region = b.pd.alloc_fast_region(1).unwrap();
    // SAFETY: the pages stay mapped until the fast-registration region is dropped.
    unsafe { region.map_foreign(&[(&foreign, 0..PAGE)], 0x1_0000) }.unwrap();
    let _ = b.perform(SendRequest::register(&region, ALL | Access::MW_BIND));
    assert_dropping_ends_a_window((&a, &b), region, |region| region.slice(..64).unwrap());
}

#[test]
fn a_dropped_key_to_the_whole_address_space_unbinds_its_windows() {
    let (a, b) = pair(199);
    let pages = Pages::new(1);
    // SAFETY: the only peer is this test, which accesses this page only.
    let everything = unsafe { b.pd.register_everything(ALL | Access::MW_BIND) }.unwrap();
    assert_dropping_ends_a_window((&a, &b), everything, |everything| {
        // SAFETY: the page outlives the window, and is accessed as atomics.
        unsafe { everything.slice(pages.at(0), 64) }
    });
}

#[test]
fn prefetching_an_unmapped_page_fails() {
    let (_a, b) = pair(195);
    let pages = Pages::new(3);
    // SAFETY: the pages outlive the region, which is on demand, so one of them may be unmapped.
    let region =
        unsafe { b.pd.register(pages.at(0), 3 * PAGE, 0, ALL | Access::ON_DEMAND) }.unwrap();
    region.prefetch(0, 3 * PAGE).unwrap();
    pages.unmap(1);
    let refused = region.prefetch(0, 3 * PAGE).unwrap_err();
    assert_eq!(refused.errno(), 14, "{refused}");
    region.prefetch(2 * PAGE, PAGE).unwrap();
}

#[test]
fn a_datagram_for_a_page_that_is_gone_fails_its_receive_alone() {
    const QKEY: QKey = QKey(0x5151);
    let end = |host| {
        let pd = Device::open_address([127, 48, 196, host]).unwrap().alloc_pd().unwrap();
        let cq = pd.device().create_cq(16).unwrap();
        let qp = datagram_qp(&pd, &cq, QKEY);
        (pd, cq, qp)
    };
    let ((pd, cq, qp), (their_pd, their_cq, their_qp)) = (end(1), end(2));
    let pages = Pages::new(2);
    // SAFETY: the pages outlive the region, which is on demand, so one of them may be unmapped.
    let region =
        unsafe { their_pd.register(pages.at(0), 2 * PAGE, 0, ALL | Access::ON_DEMAND) }.unwrap();
    pages.unmap(1);
    their_qp.post_recv(&RecvRequest::new(region.slice(PAGE..).unwrap()).wr_id(1)).unwrap();
    let way = pd.address_handle(Gid::from_ip([127, 48, 196, 2].into())).unwrap();
    let send = SendRequest::send(Data::inline(b"hello")).to(&way, their_qp.qpn(), QKEY).signaled();
    qp.post_send(&send).unwrap();
    assert_eq!(cq.wait_one(LONG).unwrap().status, WcStatus::Success, "the sender learns nothing");
    let failed = failure(&their_cq);
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::LocProtErr));
    assert_eq!(their_qp.state(), QpState::Err);
}

#[test]
fn a_flush_for_persistence_has_the_bytes_in_the_file_when_it_completes() {
    let (a, b) = pair(197);
    // The file is next to the program, because build folders are on disks.
    let path =
        std::env::current_exe().unwrap().with_extension(format!("log{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(4 * PAGE as u64).unwrap();
    let rights = ALL | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT | Access::MW_BIND;
    let log = match b.pd.map_file(&file, 0, 4 * PAGE, rights) {
        Ok(log) => log,
        Err(error @ MapFileError::Register(RegMrError::NotPersistent { .. })) => {
            eprintln!("skipped: needs a folder on a disk beside the test: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let there = log.remote();
    let mut found = vec![0; 5000];
    for (round, placement) in
        [PlacementType::GLOBAL_VISIBILITY, PlacementType::PERSISTENCE, PlacementType::PERSISTENCE]
            .into_iter()
            .enumerate()
    {
        let bytes = pattern(5000, round as u8 + 1);
        a.region.write(0, &bytes).unwrap();
        let at = there.slice(100..5100).unwrap();
        a.qp.post_send(&SendRequest::write(a.slice(..5000), at)).unwrap();
        let flush = match round {
            2 => SendRequest::flush_region(there, placement),
            _ => SendRequest::flush(at, 5000, placement),
        };
        assert_eq!(a.status(flush), WcStatus::Success, "{placement:?}");
        file.seek(SeekFrom::Start(100)).unwrap();
        file.read_exact(&mut found).unwrap();
        assert_eq!(found, bytes);
    }
    // A window of the region makes the same promise.
    let mut window = b.pd.alloc_window().unwrap();
    let access = Access::REMOTE_WRITE | Access::FLUSH_PERSISTENT;
    let _ = b.perform(SendRequest::bind(&mut window, log.slice(PAGE..2 * PAGE).unwrap(), access));
    let _ = a.perform(SendRequest::flush(window.remote().unwrap(), 10, PlacementType::PERSISTENCE));
    assert_eq!(b.device.counter(Counter::FlushFailed), 0);
}
