//! Memory that two processes share, and the copies into and out of it.
//!
//! ```text
//!  0         128    256    384      512       64 Ki               64 Ki + capacity
//! | layout  | head | tail | asleep | restart | bytes of the ring  | the same bytes once more |
//! ```
//! The bytes of the ring are mapped twice, one mapping behind the other. So bytes that go round the
//! end of the ring are contiguous, too.
//!
//! The memory is a file of memfd_create(2), sealed against shrinking. The other process can change
//! each byte at any time, and it may be hostile. Therefore:
//!
//! - No `&[u8]` to the bytes exists. [`SharedMemory::read`] copies them to private memory,
//!   [`SharedMemory::write`] copies them out of it, and [`SharedMemory::view`] returns atomics.
//! - The words of [`Control`] are atomics. A caller loads a word once and checks the copy.
//! - A position is reduced to the capacity before each access, so that no position leaves the
//!   mapping.
//! - A file that can lose its pages is refused, because an access would end this process (SIGBUS).
//!
//! A forked child does not have the mapping.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8 as AtomicByte;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;

use super::fork::{CloseOnFork, ProcessId, close_on_fork};
use super::last_errno;
use urxe_types::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes before the bytes of the ring: the largest page of a machine that Linux runs on. Only the
/// first page takes memory.
const CONTROL_LEN: usize = 64 << 10;
/// The type of the file system of memfd_create(2) without `MFD_HUGETLB` (statfs(2)). Pages of
/// another file system can be missing at an access.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The first page of the memory. Each word has two cache lines of its own, because processors fetch
/// lines in pairs.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    layout: Line<AtomicU64>,
    head: Line<AtomicU64>,
    tail: Line<AtomicU64>,
    asleep: Line<AtomicU32>,
    restart: Line<AtomicU64>,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Line<T>(T);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Control>() == 5 * 128 && size_of::<Control>() <= CONTROL_LEN);

impl Control {
    /// Makes the words of a new ring in private memory, for tests and models.
    #[cfg(test)]
    pub fn private() -> Self {
        let word = || Line(AtomicU64::new(0));
        let asleep = Line(AtomicU32::new(0));
        Self { layout: word(), head: word(), tail: word(), asleep, restart: word() }
    }

    /// The position up to which the producer has written. Only the producer stores it.
    pub fn head(&self) -> &AtomicU64 {
        &self.head.0
    }

    /// The position up to which the consumer has read. Only the consumer stores it.
    pub fn tail(&self) -> &AtomicU64 {
        &self.tail.0
    }

    /// The position from which the producer went on at the next beginning of the ring last. Only
    /// the producer stores it.
    pub fn restart(&self) -> &AtomicU64 {
        &self.restart.0
    }

    /// 1 while a thread of the consumer sleeps, or is about to. The producer sets it to 0 when it
    /// wakes the consumer.
    pub fn asleep(&self) -> &AtomicU32 {
        &self.asleep.0
    }
}

/// Memory that this process shares with another one.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    capacity: usize,
    process: ProcessId,
}

// SAFETY: all accesses are atomic, or opaque copies that other threads and processes may race with.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes memory for a ring of `capacity` bytes, a power of two. Returns the file for the other
    /// process as well. `layout` is stored in the first word.
    ///
    /// # Errors
    /// The system's.
    pub fn create(capacity: usize, layout: u64) -> Result<(Self, CloseOnFork<OwnedFd>), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = close_on_fork(|| memfd_create("urxe-ring", flags))?;
        ftruncate(&file, (CONTROL_LEN + capacity) as u64)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        let memory = Self::map(&file, capacity)?;
        memory.control().layout.0.store(layout, Ordering::Relaxed);
        Ok((memory, file))
    }

    /// Maps the memory that another process made with the same arguments.
    ///
    /// # Errors
    /// `EINVAL` if the file has another length, another layout, or pages that can get lost; the
    /// system's.
    pub fn open(file: impl AsFd, capacity: usize, layout: u64) -> Result<Self, Errno> {
        // Only files in memory have seals; other files fail here.
        let seals = fcntl_get_seals(&file)?;
        let length = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let is_usual = fstatfs(&file)?.f_type as u64 == TMPFS_MAGIC;
        if !seals.contains(SealFlags::SHRINK)
            || length != (CONTROL_LEN + capacity) as u64
            || !is_usual
        {
            return Err(Errno::INVAL);
        }
        let memory = Self::map(&file, capacity)?;
        match memory.control().layout.0.load(Ordering::Relaxed) == layout {
            true => Ok(memory),
            false => Err(Errno::INVAL),
        }
    }

    fn map(file: impl AsFd, capacity: usize) -> Result<Self, Errno> {
        let length = capacity.checked_mul(2).and_then(|both| both.checked_add(CONTROL_LEN));
        let length = length.filter(|length| isize::try_from(*length).is_ok());
        let Some(length) = length.filter(|_| capacity.is_power_of_two()) else {
            return Err(Errno::INVAL);
        };
        let (flags, rights) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_NONE);
        // SAFETY: a new mapping at an unused address; no memory of the program changes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        // Dropped at an error below.
        let memory = Self { base, capacity, process: ProcessId::this() };
        memory.place(&file, 0, 0, CONTROL_LEN + capacity)?;
        memory.place(&file, CONTROL_LEN + capacity, CONTROL_LEN, capacity)?;
        // SAFETY: the mapping just made. The advice changes what a forked child has, nothing here.
        if unsafe { libc::madvise(base.as_ptr().cast(), length, libc::MADV_DONTFORK) } != 0 {
            return Err(last_errno());
        }
        Ok(memory)
    }

    /// Maps `length` bytes of the file, from `offset` on, at a place of the mapping.
    fn place(&self, file: impl AsFd, at: usize, offset: usize, length: usize) -> Result<(), Errno> {
        let (flags, rights) =
            (libc::MAP_SHARED | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
        let (number, offset) = (file.as_fd().as_raw_fd(), offset as libc::off_t);
        assert!(at + length <= CONTROL_LEN + 2 * self.capacity, "a place behind the mapping");
        // SAFETY: the place is in the mapping of this value, as the assertion shows, and nothing
        // uses it yet.
        let mapped = unsafe {
            let place = self.base.as_ptr().add(at).cast();
            libc::mmap(place, length, rights, flags, number, offset)
        };
        if mapped == libc::MAP_FAILED { Err(last_errno()) } else { Ok(()) }
    }

    /// Returns whether this is a forked child of the process that mapped the memory. Then nothing
    /// may be accessed.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.process.is_other()
    }

    /// Returns the words before the ring. The caller must not be an [inherited](Self::is_inherited)
    /// copy.
    #[must_use]
    pub fn control(&self) -> &Control {
        // SAFETY: the first page of the mapping, which lives as long as `self` and is aligned to a
        // page. `Control` consists of atomics, for which all bytes are valid, and of padding.
        unsafe { self.base.cast().as_ref() }
    }

    /// Returns the number of bytes of the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies `bytes` to a position of the ring. After its last byte comes its first one. Copies at
    /// most as many bytes as the ring has.
    pub fn write(&self, position: u64, bytes: &[u8]) {
        let (at, len) = self.part(position, bytes.len());
        // SAFETY: `part` returns a range of both mappings of the ring, and `len <= bytes.len()`.
        unsafe { opaque_copy(self.bytes().add(at), bytes.as_ptr(), len) };
    }

    /// Copies from a position of the ring to `out`, as [`write`](Self::write) does.
    pub fn read(&self, position: u64, out: &mut [u8]) {
        let (at, len) = self.part(position, out.len());
        // SAFETY: as in `write`.
        unsafe { opaque_copy(out.as_mut_ptr(), self.bytes().add(at), len) };
    }

    /// Returns the `len` bytes from a position of the ring on, at most as many as the ring has.
    #[must_use]
    pub fn view(&self, position: u64, len: usize) -> &[AtomicByte] {
        let (at, len) = self.part(position, len);
        // SAFETY: `part` returns a range of both mappings of the ring, which live as long as
        // `self`. All accesses of this process are atomic, or opaque copies.
        unsafe { std::slice::from_raw_parts(self.bytes().add(at).cast(), len) }
    }

    /// Gives the pages of the ring back to the system. Its bytes are then zeros for both processes.
    ///
    /// # Errors
    /// The system's.
    pub fn free_pages(&self) -> Result<(), Errno> {
        // SAFETY: the bytes of the ring are the rest of the mapping, from a whole page on. The call
        // stores zeros, and accesses of both processes to these bytes may race with any store.
        let result =
            unsafe { libc::madvise(self.bytes().cast(), self.capacity, libc::MADV_REMOVE) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Returns the offset of a position, and the number of bytes from there on, which both mappings
    /// of the ring contain.
    fn part(&self, position: u64, len: usize) -> (usize, usize) {
        ((position & (self.capacity as u64 - 1)) as usize, len.min(self.capacity))
    }

    fn bytes(&self) -> *mut u8 {
        // SAFETY: the mapping has more than `CONTROL_LEN` bytes.
        unsafe { self.base.as_ptr().add(CONTROL_LEN) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // A forked child may have other memory at the address.
        if !self.is_inherited() {
            // SAFETY: the mapping of this value, which nothing uses any more.
            unsafe {
                libc::munmap(self.base.as_ptr().cast(), CONTROL_LEN + 2 * self.capacity);
            }
        }
    }
}

type CopyFn =
    unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;

/// Copies `len` bytes in no particular order. The compiler can neither repeat a read of the source
/// later nor assume that the bytes stay unchanged, because it does not know the called function.
///
/// # Safety
/// Both ranges are mapped, do not overlap, and `dst` is writable. Another process may change the
/// shared one meanwhile; the copy then has some of the old and some of the new bytes.
unsafe fn opaque_copy(dst: *mut u8, src: *const u8, len: usize) {
    let copy = std::hint::black_box(libc::memcpy as CopyFn);
    // SAFETY: the caller's promise.
    unsafe { copy(dst.cast(), src.cast(), len) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CAPACITY: usize = 1 << 16;

    #[test]
    fn bytes_go_round_the_end_and_no_position_leaves_the_ring() {
        let (memory, file) = SharedMemory::create(CAPACITY, 7).unwrap();
        let other = SharedMemory::open(&file, CAPACITY, 7).unwrap();
        for position in [0, 5, CAPACITY as u64 - 3, u64::MAX - 1, u64::MAX << 13] {
            memory.write(position, b"0123456789");
            let mut read = [0; 10];
            other.read(position, &mut read);
            assert_eq!(&read, b"0123456789", "{position}");
            let viewed = other.view(position, 10).iter().map(|byte| byte.load(Ordering::Relaxed));
            assert!(viewed.eq(*b"0123456789"), "{position}");
        }
        let too_long = vec![9; CAPACITY + 100];
        memory.write(77, &too_long);
        let mut read = vec![0; CAPACITY + 100];
        other.read(77, &mut read);
        assert_eq!((read[CAPACITY - 1], read[CAPACITY]), (9, 0), "one round and no more");
        assert_eq!(other.view(3, CAPACITY + 100).len(), CAPACITY);
        assert_eq!(
            other.control().head().load(Ordering::Relaxed),
            0,
            "the control words are apart"
        );
    }

    #[test]
    fn freed_pages_are_zeros_in_both_processes_and_take_no_memory() {
        let (memory, file) = SharedMemory::create(CAPACITY, 7).unwrap();
        let other = SharedMemory::open(&file, CAPACITY, 7).unwrap();
        memory.write(0, &[1; CAPACITY]);
        memory.control().head().store(9, Ordering::Relaxed);
        let blocks = || fstat(&file).unwrap().st_blocks as usize * 512;
        let page = rustix::param::page_size();
        assert_eq!(blocks(), page + CAPACITY);
        memory.free_pages().unwrap();
        assert_eq!(blocks(), page);
        let mut read = [1; 10];
        other.read(5000, &mut read);
        assert_eq!((read, other.control().head().load(Ordering::Relaxed)), ([0; 10], 9));
    }

    #[test]
    fn only_sealed_memory_of_the_right_length_and_layout_is_mapped() {
        let flags = MemfdFlags::ALLOW_SEALING;
        let length = (CONTROL_LEN + CAPACITY) as u64;
        let made = |length, seals| {
            let file = memfd_create("test", flags).unwrap();
            ftruncate(&file, length).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let open = |file: &OwnedFd| SharedMemory::open(file, CAPACITY, 0).err();
        assert_eq!(open(&made(length, SealFlags::SHRINK)), None);
        assert_eq!(open(&made(length, SealFlags::GROW)), Some(Errno::INVAL), "it can shrink");
        assert_eq!(open(&made(length - 1, SealFlags::SHRINK)), Some(Errno::INVAL));
        assert_eq!(open(&made(0, SealFlags::SHRINK)), Some(Errno::INVAL));
        let other_layout = SharedMemory::open(made(length, SealFlags::SHRINK), CAPACITY, 1);
        assert_eq!(other_layout.err(), Some(Errno::INVAL));
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        assert!(SharedMemory::open(&file, CAPACITY, 0).is_err(), "a file on a disk");
        // Its pages may be missing, which ends the process that touches them.
        let huge = memfd_create("test", flags | MemfdFlags::HUGETLB).and_then(|file| {
            ftruncate(&file, 1 << 30)?;
            fcntl_add_seals(&file, SealFlags::SHRINK)?;
            Ok(file)
        });
        match huge {
            Ok(file) => {
                let opened = SharedMemory::open(file, (1 << 30) - CONTROL_LEN, 0);
                assert_eq!(opened.err(), Some(Errno::INVAL));
            }
            Err(errno) => eprintln!("skipped: no file of huge pages ({errno})"),
        }
    }
}
