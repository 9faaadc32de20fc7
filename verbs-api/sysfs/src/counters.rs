//! Live counters: files that are updated when a program opens them, and when it reads them again
//! from the beginning.
//!
//! The files in the replacement directory contain zeros. When a program opens one, the library
//! opens a file in memory with the current value instead. perftest reads the file again by a `read`
//! at its beginning or by a `pread`, and these functions check a short list of such files. The
//! values come from `liburxe.so` in the same process, after that library has registered its read
//! function ([`urxe_sysfs_offer`]). Before, the values are zero.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::mem::transmute;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, memfd_create, tell};
use rustix::io::pwrite;

use crate::path::{Place, bytes};

/// The function by which `liburxe.so` returns a counter: pointer and length of the device name, of
/// the counter name, and the place for the value. Returns 0 if the counter exists.
pub type Read = unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut u64) -> c_int;

static READ: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Registers the read function. `liburxe.so` calls this function when it opens its first device.
#[unsafe(no_mangle)]
pub extern "C" fn urxe_sysfs_offer(read: Read) {
    READ.store(read as *mut (), Ordering::Release);
}

/// Returns the value of a counter, or zero if the counter is unknown.
fn value(device: &[u8], counter: &[u8]) -> u64 {
    let read = READ.load(Ordering::Acquire);
    if read.is_null() {
        return 0;
    }
    // SAFETY: what `urxe_sysfs_offer` stored, a function of this type.
    let read = unsafe { transmute::<*mut (), Read>(read) };
    let mut value = 0;
    // SAFETY: as `Read` says: two texts with their lengths, and a place for the value.
    let failed =
        unsafe { read(device.as_ptr(), device.len(), counter.as_ptr(), counter.len(), &mut value) };
    if failed == 0 { value } else { 0 }
}

/// Returns the device and the counter of a path.
fn names(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = [b"/sys/class/infiniband/".as_slice(), b"/sys/devices/virtual/infiniband/"]
        .iter()
        .find_map(|folder| path.strip_prefix(*folder))?;
    let end = inside.iter().position(|byte| *byte == b'/')?;
    let (device, file) = inside.split_at(end);
    let counter = [b"/ports/1/hw_counters/".as_slice(), b"/ports/1/counters/"]
        .iter()
        .find_map(|folder| file.strip_prefix(*folder))?;
    let is_counter = !counter.is_empty() && !counter.contains(&b'/') && counter != b"lifespan";
    is_counter.then_some((device, counter))
}

/// Device and inode of a file.
pub type Identity = (u64, u64);

pub fn identity(file: impl AsFd) -> Option<Identity> {
    fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// The memory file of a counter.
pub struct Live {
    file: OwnedFd,
    device: Box<[u8]>,
    counter: Box<[u8]>,
}

/// A memory file that the program has open.
#[derive(Clone)]
struct Open {
    descriptor: c_int,
    identity: Identity,
    device: Box<[u8]>,
    counter: Box<[u8]>,
}

/// Maximum number of open counter files. Beyond this number, the oldest files are forgotten and
/// keep their values.
const OPEN_MAX: usize = 256;
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
/// Whether a counter file is open; if not, reads cost nothing.
static ANY: AtomicBool = AtomicBool::new(false);

/// The open counter files of a process.
struct Table {
    process: u32,
    open: Mutex<Vec<Open>>,
}

impl Table {
    /// Returns the table that was made last: that of this process, or of the process that forked.
    fn last() -> Option<&'static Self> {
        // SAFETY: NULL, or a table that `own` made, which stays for ever.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the table of this process. A forked child makes a table of its own, because a thread
    /// that the child does not have may hold the lock of the inherited one.
    fn own() -> &'static Self {
        let (process, last) = (std::process::id(), Self::last());
        if let Some(table) = last.filter(|table| table.process == process) {
            return table;
        }
        let inherited = last.and_then(|table| table.open.try_lock().ok());
        let open = inherited.map_or_else(Vec::new, |open| open.clone());
        let made = Box::into_raw(Box::new(Self { process, open: Mutex::new(open) }));
        let last = last.map_or(ptr::null_mut(), |table| ptr::from_ref(table).cast_mut());
        match TABLE.compare_exchange(last, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the table stays for ever.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: no other thread knows the new table. The other one was made by a thread
                // of this process meanwhile, and stays for ever.
                unsafe {
                    drop(Box::from_raw(made));
                    &*other
                }
            }
        }
    }
}

impl Live {
    /// Makes a memory file for the counter of `path`, and stores the path to the file in `place`.
    /// Returns `None` if `path` is not the path of an existing counter.
    ///
    /// # Safety
    /// `path` is NULL or a string that ends with a zero.
    pub unsafe fn open(path: *const c_char, place: &mut Place) -> Option<(Self, *const c_char)> {
        // SAFETY: the caller's word.
        let (device, counter) = unsafe { bytes(path) }.and_then(names)?;
        // SAFETY: the caller's word.
        let there = unsafe { crate::path::replaced(path, place) };
        // SAFETY: `replaced` gives a text that ends with zero.
        if there == path || unsafe { libc::faccessat(libc::AT_FDCWD, there, libc::F_OK, 0) } != 0 {
            return None;
        }
        let file = memfd_create(c"urxe-counter", MemfdFlags::CLOEXEC).ok()?;
        write(&file, value(device, counter))?;
        let mut name = Text::default();
        write!(name, "/proc/self/fd/{}", file.as_raw_fd()).ok()?;
        let path = place.join(&[name.bytes()])?;
        Some((Self { file, device: device.into(), counter: counter.into() }, path))
    }

    /// Notes the descriptor by which the program opened the file.
    pub fn opened(self, descriptor: Option<c_int>) {
        let (Some(descriptor), Some(identity)) = (descriptor, identity(&self.file)) else { return };
        let Self { device, counter, .. } = self;
        let mut open = Table::own().open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.descriptor != descriptor);
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push(Open { descriptor, identity, device, counter });
        ANY.store(true, Ordering::Relaxed);
    }
}

/// Writes the current value, if the descriptor is a counter file that is about to be read from its
/// beginning.
pub fn refresh(descriptor: c_int) {
    if !ANY.load(Ordering::Relaxed) || descriptor < 0 {
        return;
    }
    // Another thread holds the lock, or a fork copied a held lock. The value then stays a little
    // older.
    let Some(Ok(open)) = Table::last().map(|table| table.open.try_lock()) else { return };
    let Some(counter) = open.iter().find(|open| open.descriptor == descriptor) else { return };
    // SAFETY: the program passed the descriptor to read from it; if it is closed, all calls fail.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if identity(file) != Some(counter.identity) || tell(file) != Ok(0) {
        return;
    }
    // The program's descriptor is read-only.
    let mut name = Text::default();
    if write!(name, "/proc/self/fd/{descriptor}").is_ok()
        && let Ok(file) =
            rustix::fs::open(name.bytes(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    {
        write(&file, value(&counter.device, &counter.counter));
    }
}

/// Writes the value. Counters never decrease, so the text never becomes shorter.
fn write(file: impl AsFd, value: u64) -> Option<()> {
    let mut text = Text::default();
    writeln!(text, "{value}").ok()?;
    pwrite(file, text.bytes(), 0).ok().map(|_| ())
}

/// A short string without heap memory.
#[derive(Default)]
struct Text {
    bytes: [u8; 32],
    len: usize,
}

impl Text {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_a_path() {
        let of = |path: &'static str| names(path.as_bytes());
        let sent = Some((b"rxe0".as_slice(), b"sent_pkts".as_slice()));
        assert_eq!(of("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"), sent);
        assert_eq!(of("/sys/devices/virtual/infiniband/rxe0/ports/1/counters/sent_pkts"), sent);
        for other in
            ["hw_counters/", "hw_counters", "gids/0", "hw_counters/a/b", "hw_counters/lifespan"]
        {
            assert_eq!(
                names(format!("/sys/class/infiniband/rxe0/ports/1/{other}").as_bytes()),
                None
            );
        }
        assert_eq!(of("/sys/class/infiniband_verbs/uverbs0/ports/1/hw_counters/sent_pkts"), None);
    }

    /// Notes an open counter file.
    fn note(descriptor: c_int) {
        let file = memfd_create(c"counter", MemfdFlags::CLOEXEC).unwrap();
        let live = Live { file, device: (*b"rxe0").into(), counter: (*b"sent_pkts").into() };
        live.opened(Some(descriptor));
    }

    /// Runs `child` in a forked child, and returns whether the child ends with success within ten
    /// seconds.
    fn succeeds_in_a_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs `child` and ends without running handlers.
        let pid = unsafe {
            match libc::fork() {
                0 => libc::_exit(c_int::from(!child())),
                pid => pid,
            }
        };
        assert!(pid > 0);
        let mut status = 0;
        for _ in 0..1000 {
            // SAFETY: the child is this process's, and the status is a variable.
            if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
                return status == 0;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // SAFETY: as above.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, &raw mut status, 0);
        }
        false
    }

    #[test]
    fn a_child_notes_files_though_another_thread_held_the_lock_at_the_fork() {
        // Numbers that no other test has open.
        const FIRST: c_int = 100_001;
        const SECOND: c_int = 100_002;
        let noted = || {
            let open = Table::own().open.lock().unwrap();
            let of_test =
                open.iter().map(|open| open.descriptor).filter(|number| *number > 100_000);
            of_test.collect::<Vec<_>>()
        };
        note(FIRST);
        let child = || {
            note(SECOND);
            noted() == [FIRST, SECOND]
        };
        assert!(succeeds_in_a_child(child), "a child knows the inherited files");
        let held = Table::own().open.lock().unwrap();
        let child = || {
            note(SECOND);
            noted() == [SECOND]
        };
        assert!(succeeds_in_a_child(child), "the child does not wait");
        drop(held);
        assert_eq!(noted(), [FIRST]);
    }
}
