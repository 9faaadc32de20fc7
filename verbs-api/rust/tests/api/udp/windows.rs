//! Windows, fast-registration regions, device memory, files and reregistered regions.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use urxe::*;

use crate::common::{ALL, End, SIZE, connect, failure, pair, pattern, status};

const FOR_WINDOWS: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);
const GRANTED: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

fn bind(end: &End, window: &mut MemoryWindow, part: RegionSlice<'_>) -> RemoteRegion {
    assert_eq!(end.perform(SendRequest::bind(window, part, GRANTED)).opcode, WcOpcode::BindMw);
    window.remote().unwrap()
}

fn write(from: &End, to: RemoteRegion, bytes: &[u8]) -> WcStatus {
    from.region.write(0, bytes).unwrap();
    from.post(SendRequest::write(from.region.slice(..bytes.len()).unwrap(), to));
    status(&from.cq)
}

#[test]
fn a_window_grants_its_part_until_it_is_invalidated() {
    let (a, b) = pair(180);
    let region = b.pd.allocate(10_000, FOR_WINDOWS).unwrap();
    let mut window = b.pd.alloc_window().unwrap();
    assert_eq!(window.remote(), None);

    let first = bind(&b, &mut window, region.slice(1000..3000).unwrap());
    assert_eq!(first.len, 2000);
    assert_eq!(write(&a, first, &pattern(2000, 1)), WcStatus::Success);
    assert_eq!(region.read_vec(1000, 2000).unwrap(), pattern(2000, 1));

    // Another part, with another key.
    assert_eq!(b.perform(SendRequest::invalidate(window.rkey())).opcode, WcOpcode::LocalInv);
    let second = bind(&b, &mut window, region.slice(5000..5100).unwrap());
    assert_ne!(first.rkey, second.rkey);
    assert_eq!(write(&a, second, &pattern(100, 2)), WcStatus::Success);
    assert_eq!(region.read_vec(5000, 100).unwrap(), pattern(100, 2));

    assert_eq!(write(&a, first, &pattern(100, 3)), WcStatus::RemAccessErr);
    assert_eq!(region.read_vec(1000, 2000).unwrap(), pattern(2000, 1));
}

#[test]
fn a_dropped_window_is_gone_and_its_region_outlives_its_handle() {
    let (a, b) = pair(181);
    let region = b.pd.allocate(4096, FOR_WINDOWS).unwrap();
    let mut window = b.pd.alloc_window().unwrap();
    let there = bind(&b, &mut window, region.slice(..).unwrap());
    // The window keeps the memory of the region.
    drop(region);
    assert_eq!(write(&a, there, b"still"), WcStatus::Success);
    drop(window);
    assert_eq!(write(&a, there, b"gone"), WcStatus::RemAccessErr);
    // Dropping the domain fails if an object is left.
    drop(b);
}

#[test]
fn queue_pairs_take_their_windows_with_them() {
    let (_a, b) = pair(182);
    let region = b.pd.allocate(4096, FOR_WINDOWS).unwrap();
    let mut window = b.pd.alloc_window().unwrap();
    bind(&b, &mut window, region.slice(..).unwrap());
    let End { qp, pd, .. } = b;
    drop(region);
    drop(qp);
    drop(window);
    drop(pd);
}

#[test]
fn a_bind_that_the_region_does_not_allow_fails_alone() {
    let (_a, b) = pair(183);
    let mut window = b.pd.alloc_window().unwrap();
    b.qp.post_send(&SendRequest::bind(&mut window, b.slice(..), GRANTED).wr_id(9)).unwrap();
    let failed = failure(&b.cq);
    assert_eq!((failed.wr_id, failed.status), (9, WcStatus::MwBindErr));
}

#[test]
fn a_window_is_bound_after_a_bind_that_failed_and_one_that_was_not_posted() {
    let (a, b) = pair(189);
    let region = b.pd.allocate(4096, FOR_WINDOWS).unwrap();
    let mut window = b.pd.alloc_window().unwrap();
    // This region does not grant binds.
    b.qp.post_send(&SendRequest::bind(&mut window, b.slice(..), GRANTED)).unwrap();
    assert_eq!(failure(&b.cq).status, WcStatus::MwBindErr);
    let unposted = SendRequest::bind(&mut window, region.slice(..8).unwrap(), GRANTED);
    drop(unposted);
    for end in [&a, &b] {
        end.qp.reset().unwrap();
    }
    connect(&a.qp, &b.qp);
    let there = bind(&b, &mut window, region.slice(16..32).unwrap());
    assert_eq!(write(&a, there, &pattern(16, 4)), WcStatus::Success);
    assert_eq!(region.read_vec(16, 16).unwrap(), pattern(16, 4));
}

#[test]
fn a_type_1_window_is_bound_anew_at_will_and_unbound_by_a_bind_of_nothing() {
    let (a, b) = pair(188);
    let region = b.pd.allocate(4096, FOR_WINDOWS).unwrap();
    let mut window = b.pd.alloc_window_of_type(MwType::Type1).unwrap();
    assert_eq!(window.kind(), MwType::Type1);
    let first = bind(&b, &mut window, region.slice(..16).unwrap());
    assert_eq!(write(&a, first, &pattern(16, 1)), WcStatus::Success);
    // The window belongs to the domain, so the peers of both queue pairs can use its key.
    let (other, far) =
        (b.pd.queue_pair(&b.cq).create().unwrap(), a.pd.queue_pair(&a.cq).create().unwrap());
    connect(&other, &far);
    other
        .post_send(
            &SendRequest::bind(&mut window, region.slice(16..32).unwrap(), GRANTED).signaled(),
        )
        .unwrap();
    assert_eq!(b.complete().opcode, WcOpcode::BindMw);
    let second = window.remote().unwrap();
    assert_eq!(write(&a, second, &pattern(16, 2)), WcStatus::Success);
    assert_eq!(region.read_vec(0, 32).unwrap(), [pattern(16, 1), pattern(16, 2)].concat());

    assert_eq!(b.perform(SendRequest::unbind(&mut window)).opcode, WcOpcode::BindMw);
    assert_eq!(window.remote(), None);
    // No window is bound to the region any more, so dropping its handle deregisters it.
    drop(region);
    for stale in [first, second] {
        far.post_send(&SendRequest::write(a.slice(..1), stale).signaled()).unwrap();
        let status = failure(&a.cq).status;
        assert!(matches!(status, WcStatus::RemAccessErr | WcStatus::WrFlushErr), "{status}");
    }
    assert_eq!(write(&a, second, b"late"), WcStatus::RemAccessErr);
}

#[test]
fn a_fast_region_is_mapped_and_registered_again_and_again() {
    let (a, b) = pair(184);
    let memory = b.pd.allocate(5 * 4096, Access::LOCAL_WRITE).unwrap();
    let mut region = b.pd.alloc_fast_region(2).unwrap();
    assert_eq!((region.max_pages(), region.is_valid()), (2, false));
    assert!(matches!(region.map(&memory, 0..3 * 4096, 0), Err(MapError::TooManyPages { .. })));
    let mut former = None;
    for page in 0..4 {
        let start = page * 4096 + 5;
        region.map(&memory, start..start + 5000, 0x7000 + 5).unwrap();
        let access = GRANTED | Access::LOCAL_WRITE;
        assert_eq!(b.perform(SendRequest::register(&region, access)).opcode, WcOpcode::RegMr);
        assert!(region.is_valid() && former != Some(region.rkey()));
        former = Some(region.rkey());
        let bytes = pattern(5000, page as u8);
        assert_eq!(write(&a, region.remote(), &bytes), WcStatus::Success);
        assert_eq!(memory.read_vec(start, 5000).unwrap(), bytes);
        let _ = b.perform(SendRequest::invalidate(region.rkey()));
        assert!(!region.is_valid());
    }
    assert_eq!(write(&a, region.remote(), b"late"), WcStatus::RemAccessErr);
}

#[test]
fn device_memory_is_copied_and_reached_by_peers() {
    let (a, b) = pair(185);
    let memory = b.device.alloc_device_memory(8192, 6).unwrap();
    memory.write(100, &pattern(500, 7)).unwrap();
    let region = b.pd.register_device_memory(&memory, 64..8192, ALL).unwrap();
    let there = region.remote().slice(36..536).unwrap();
    let _ = a.perform(SendRequest::read(a.slice(..500), there));
    assert_eq!(a.bytes(0, 500), pattern(500, 7));
    assert_eq!(write(&a, there, &pattern(500, 8)), WcStatus::Success);
    drop(region);
    let mut bytes = vec![0; 500];
    memory.read(100, &mut bytes).unwrap();
    assert_eq!(bytes, pattern(500, 8));
    assert!(matches!(memory.write(8000, &[0; 196]), Err(DmError::OutOfBounds { .. })));
    // The memory belongs to another device.
    assert_eq!(a.pd.register_device_memory(&memory, 0..10, ALL).unwrap_err(), DmError::Unknown);
}

#[test]
fn a_file_has_the_data_that_peers_write() {
    let (a, b) = pair(186);
    let path = std::env::temp_dir().join(format!("urxe-windows-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&[0; 3 * 4096]).unwrap();
    let region = b.pd.map_file(&file, 4096, 8192, ALL).unwrap();
    assert!(matches!(
        b.pd.map_file(&file, 5, 1, ALL),
        Err(MapFileError::Map(FileError::Offset { .. }))
    ));
    assert_eq!(write(&a, region.remote(), &pattern(8192, 9)), WcStatus::Success);
    drop(region);
    let mut bytes = vec![0; 8192];
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, pattern(8192, 9));
}

#[test]
fn a_reregistered_region_keeps_its_keys_and_loses_its_rights() {
    let (a, b) = pair(187);
    let mut region = b.pd.allocate(SIZE, ALL).unwrap();
    let there = region.remote();
    assert_eq!(write(&a, there, b"yes"), WcStatus::Success);
    region.reregister(Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    assert_eq!(region.remote(), there);
    assert_eq!(region.reregister(Access::REMOTE_WRITE).unwrap_err().errno(), 22);
    assert_eq!(write(&a, there, b"no!"), WcStatus::RemAccessErr);
    assert_eq!(region.read_vec(0, 3).unwrap(), b"yes");
    // The pages of this region are always present.
    assert!(matches!(region.prefetch(0, 10), Err(AdviseError::NotOnDemand { .. })));
    let lazy = b.pd.allocate(SIZE, ALL | Access::ON_DEMAND).unwrap();
    lazy.prefetch(4096, SIZE - 4096).unwrap();
}
