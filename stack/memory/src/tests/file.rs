//! Buffers of files and memfds.

use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::sync::Arc;

fn memfd(len: usize) -> std::os::fd::OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("region", flags).unwrap();
    ftruncate(&file, len as u64).unwrap();
    file
}

#[test]
fn what_peers_write_stands_in_the_file() {
    let size = Pages::size();
    for sealed in [false, true] {
        let file = memfd(3 * size);
        if sealed {
            fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        }
        let memory = Memory::new(1, 16);
        let buffer = Arc::new(Buffer::of_file(&file, size as u64, 2 * size).unwrap());
        assert_eq!(buffer.is_checked(), !sealed);
        let mr = memory.register_buffer(PD, &buffer, 0..2 * size, 0, ALL).unwrap();
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 0, 2 * size as u64).unwrap();
        pin.write(size as u64 - 3, b"across").unwrap();
        assert_eq!(pin.fetch_add(0, 5), Ok(0));
        let mut seen = [0; 6];
        rustix::io::pread(&file, &mut seen, 2 * size as u64 - 3).unwrap();
        assert_eq!(&seen, b"across");
        assert_eq!(buffer.load_u64(0), Ok(5));
        rustix::io::pwrite(&file, b"back", size as u64 + 100).unwrap();
        let mut seen = [0; 4];
        buffer.read(100, &mut seen).unwrap();
        assert_eq!(&seen, b"back");
        drop(pin);
        let watch = Arc::downgrade(&buffer);
        drop(buffer);
        memory.deregister(mr.lkey).unwrap();
        assert!(watch.upgrade().is_none(), "unmapped with the region");
    }
}

#[test]
fn a_file_that_is_shortened_is_an_error_and_no_crash() {
    let size = Pages::size();
    let file = memfd(2 * size);
    let memory = Memory::new(1, 16);
    let buffer = Arc::new(Buffer::of_file(&file, 0, 2 * size).unwrap());
    let mr = memory.register_buffer(PD, &buffer, 0..2 * size, 0, ALL).unwrap();
    ftruncate(&file, size as u64).unwrap();
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 0, 2 * size as u64).unwrap();
    let addr = size as u64;
    assert_eq!(pin.write(addr, &[1; 8]), Err(Fault::NotMapped { addr, len: 8 }));
    assert_eq!(pin.read(addr, &mut [0; 8]), Err(Fault::NotMapped { addr, len: 8 }));
    assert_eq!(pin.fetch_add(addr, 1), Err(Fault::NotMapped { addr, len: 8 }));
    assert_eq!(pin.write(0, &[1; 8]), Ok(()));
    let gone = Err(BufferError::Gone { offset: size, len: 8 });
    assert_eq!(buffer.write(size, &[0; 8]), gone);
    assert_eq!(buffer.read(size, &mut [0; 8]), gone);
    assert_eq!(buffer.load_u64(size).map(drop), gone);
    let key = memory.alloc_fast(PD, 4).unwrap();
    assert_eq!(
        memory.map_fast_buffers(key, &[(&buffer, 0..10)], size, 0),
        Err(MapError::MayShrink { index: 0 })
    );
}

/// Pages of the file may vanish, whatever access flags the region has and had.
#[test]
fn a_shortened_file_is_no_crash_after_a_change_of_rights() {
    let size = Pages::size();
    let file = memfd(size);
    let memory = Memory::new(1, 16);
    let buffer = Arc::new(Buffer::of_file(&file, 0, size).unwrap());
    let on_demand = ALL | Access::ON_DEMAND;
    let mr = memory.register_buffer(PD, &buffer, 0..size, 0, on_demand).unwrap();
    memory.reregister_buffer(mr.lkey, None, None, Some(ALL)).unwrap();
    ftruncate(&file, 0).unwrap();
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 0, 8).unwrap();
    assert_eq!(pin.write(0, &[1; 8]), Err(Fault::NotMapped { addr: 0, len: 8 }));
}

#[test]
fn ranges_beside_the_file_are_refused() {
    let size = Pages::size();
    let file = memfd(size);
    let errno =
        |offset, len| Buffer::of_file(&file, offset, len).map(drop).map_err(|error| error.errno());
    assert_eq!(errno(0, size), Ok(()));
    for (offset, len) in [(0, 0), (1, 8), (0, size + 1), (size as u64, 1), (u64::MAX - 4095, 1)] {
        assert_eq!(errno(offset, len), Err(libc::EINVAL), "{len} at {offset}");
    }
    let directory = std::fs::File::open("/").unwrap();
    assert!(Buffer::of_file(&directory, 0, size).is_err());
    let read_only = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(
        Buffer::of_file(&read_only, 0, 8).map(drop).map_err(|error| error.errno()),
        Err(libc::EACCES)
    );
}

/// Returns the number of free huge pages of the default size, and the size in bytes.
fn huge_pages() -> (u64, usize) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let value = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name));
        line.map_or(0, |line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
    };
    (value("HugePages_Free:") - value("HugePages_Rsvd:"), value("Hugepagesize:") as usize * 1024)
}

#[test]
fn a_buffer_of_a_part_of_a_huge_page_is_unmapped() {
    let (free, size) = huge_pages();
    if free == 0 {
        eprintln!("skipped: needs a free huge page (sysctl vm.nr_hugepages=1)");
        return;
    }
    let file = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB).unwrap();
    ftruncate(&file, size as u64).unwrap();
    let memory = Memory::new(1, 16);
    for len in [1, Pages::size(), 12_345, size] {
        let buffer = Arc::new(Buffer::of_file(&file, 0, len).unwrap());
        let start = buffer.addr().addr();
        let mr = memory.register_buffer(PD, &buffer, 0..len, 0, ALL).unwrap();
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 0, len as u64).unwrap();
        pin.write(len as u64 - 1, &[7]).unwrap();
        drop((pin, buffer));
        memory.deregister(mr.lkey).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("/memfd:huge"), "{len} bytes at {start:x}\n{maps}");
    }
    let beyond = Buffer::of_file(&file, 0, size + 1).map(drop).map_err(|error| error.errno());
    assert_eq!(beyond, Err(libc::EINVAL));
}
