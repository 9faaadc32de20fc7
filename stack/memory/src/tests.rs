//! Tests of the key table and its pins, on memory of the kernel.

mod changing;
mod device_memory;
mod fast;
mod faults;
mod file;
mod lifecycle;
mod model;
mod reregister;
mod table;
mod threads;
mod window;

use super::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::{
    ptr::null_mut,
    sync::atomic::{AtomicUsize, Ordering},
};

const PD: PdId = PdId(7);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// Returns the name of the error in the models.
fn name(error: AccessError) -> &'static str {
    match error {
        AccessError::UnknownKey { .. } => "key",
        AccessError::WrongPd { .. } => "pd",
        AccessError::Denied { .. } => "access",
        AccessError::OutOfBounds { .. } => "bounds",
        AccessError::StaleKey { .. } => "stale",
        AccessError::WrongQp { .. } => "qp",
        AccessError::Window { .. } => "local",
    }
}

/// Address range of the pages of tests. It is far below the addresses that the system assigns,
/// which begin at the top. Mappings of other threads therefore never fill a hole that a test makes.
static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);

/// Pages of a test, some of which the test unmaps.
pub(super) struct Pages {
    pub(super) base: *mut u8,
    count: usize,
}

impl Pages {
    pub(super) fn new(count: usize) -> Self {
        let len = count * Self::size();
        let place = NEXT.fetch_add(len, Ordering::Relaxed) as *mut _;
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
        // SAFETY: a new mapping, which replaces none.
        let base = unsafe { rustix::mm::mmap_anonymous(place, len, rights, flags) };
        Self { base: base.expect("pages for a test").cast(), count }
    }

    /// Maps pages of a file that has `file_pages` pages.
    pub(super) fn of_memfd(count: usize, file_pages: usize) -> Self {
        let (len, flags) = (count * Self::size(), rustix::fs::MemfdFlags::CLOEXEC);
        let file = rustix::fs::memfd_create("short", flags).expect("a file");
        rustix::fs::ftruncate(&file, (file_pages * Self::size()) as u64).expect("its length");
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping touches nothing that exists.
        let base = unsafe { rustix::mm::mmap(null_mut(), len, rights, flags, &file, 0) };
        Self { base: base.expect("pages for a test").cast(), count }
    }

    pub(super) fn size() -> usize {
        checked_copy::page_size()
    }

    pub(super) fn len(&self) -> usize {
        self.count * Self::size()
    }

    pub(super) fn page(&self, index: usize) -> *mut u8 {
        assert!(index < self.count);
        self.base.wrapping_add(index * Self::size())
    }

    pub(super) fn unmap(&self, index: usize) {
        // SAFETY: the page belongs to this test, which makes no reference to it.
        unsafe { rustix::mm::munmap(self.page(index).cast(), Self::size()) }.expect("unmap a page");
    }

    pub(super) fn protect(&self, index: usize, flags: MprotectFlags) {
        // SAFETY: the page belongs to this test, which makes no reference to it.
        unsafe { rustix::mm::mprotect(self.page(index).cast(), Self::size(), flags) }
            .expect("protect a page");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is this test's; where pages are gone, nothing is mapped.
        unsafe { rustix::mm::munmap(self.base.cast(), self.len()) }.expect("unmap pages");
    }
}

/// Registers a whole buffer under its own address.
fn register(memory: &Memory, pd: PdId, buffer: &Buffer, access: Access) -> Mr {
    let iova = buffer.addr().addr() as u64;
    // SAFETY: the tests keep each buffer until the table no longer uses it.
    unsafe { memory.register(pd, buffer.addr(), buffer.len(), iova, access) }
        .expect("register a buffer")
}

#[test]
fn a_registered_buffer_stays_until_it_is_deregistered() {
    let memory = Memory::new(7, 10);
    let pd = PdId(1);
    let buffer = std::sync::Arc::new(Buffer::new(8192).unwrap());
    let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
    let outside = memory.register_buffer(pd, &buffer, 100..8193, 0, access);
    assert_eq!(outside, Err(RegMrError::OutsideBuffer { start: 100, end: 8193, len: 8192 }));
    let mr = memory.register_buffer(pd, &buffer, 4096..8192, 0, access).unwrap();
    let watch = std::sync::Arc::downgrade(&buffer);
    drop(buffer);
    memory.pin(mr.lkey.0, pd, Access::LOCAL_WRITE, 0, 4096).unwrap().write(0, &[5; 4096]).unwrap();
    assert!(watch.upgrade().is_some());
    memory.deregister(mr.lkey).unwrap();
    assert!(watch.upgrade().is_none());
}
