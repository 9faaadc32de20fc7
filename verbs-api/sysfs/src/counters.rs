//! Counters that move: files that are brought up to date when they are opened, and when they are
//! read anew from the beginning.
//!
//! The folder's own files hold zeros. Opening one opens a file in memory instead, with the value of
//! that moment; reading it again, as perftest does, is a `read` at its beginning or a `pread`
//! there, which look into a short list of such files. Values come from `liburxe.so` in the same
//! process, once it has said how to read them ([`urxe_sysfs_offer`]); until then they are zero.

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

/// How `liburxe.so` tells a counter: the device's name and the counter's, both with their lengths;
/// 0 if there is the value.
pub type Read = unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut u64) -> c_int;

static READ: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Called by `liburxe.so` when it opens its first device.
#[unsafe(no_mangle)]
pub extern "C" fn urxe_sysfs_offer(read: Read) {
    READ.store(read as *mut (), Ordering::Release);
}

/// What a counter stands at; zero if nobody can tell.
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

/// The device and the counter that a path names.
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
type Identity = (u64, u64);

fn identity(file: impl AsFd) -> Option<Identity> {
    fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// A counter's file in memory.
pub struct Live {
    file: OwnedFd,
    device: Box<[u8]>,
    counter: Box<[u8]>,
}

/// One that the program has open.
struct Open {
    descriptor: c_int,
    identity: Identity,
    device: Box<[u8]>,
    counter: Box<[u8]>,
}

/// More than a program reads; the oldest are forgotten, and keep their values.
const OPEN_MAX: usize = 256;
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
/// Whether there is any, so that others pay nothing.
static ANY: AtomicBool = AtomicBool::new(false);

impl Live {
    /// A file for the counter that `path` names, if it names one that there is, and a path to the
    /// file in `place`.
    ///
    /// # Safety
    /// `path` is NULL or a text that ends with zero.
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

    /// The program has opened it once more, as `descriptor`.
    pub fn opened(self, descriptor: Option<c_int>) {
        let (Some(descriptor), Some(identity)) = (descriptor, identity(&self.file)) else { return };
        let Self { device, counter, .. } = self;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.descriptor != descriptor);
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push(Open { descriptor, identity, device, counter });
        ANY.store(true, Ordering::Relaxed);
    }
}

/// Writes the value as it is now, if the descriptor is a counter's that is about to be read from
/// its beginning.
pub fn refresh(descriptor: c_int) {
    if !ANY.load(Ordering::Relaxed) || descriptor < 0 {
        return;
    }
    // A thread that is at it, or one that a fork did not copy: the value is a little older.
    let Ok(open) = OPEN.try_lock() else { return };
    let Some(counter) = open.iter().find(|open| open.descriptor == descriptor) else { return };
    // SAFETY: the program asks to read from it; if it is not open, all calls fail.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if identity(file) != Some(counter.identity) || tell(file) != Ok(0) {
        return;
    }
    // It is open for reading alone.
    let mut name = Text::default();
    if write!(name, "/proc/self/fd/{descriptor}").is_ok()
        && let Ok(file) =
            rustix::fs::open(name.bytes(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    {
        write(&file, value(&counter.device, &counter.counter));
    }
}

/// A counter never falls, so that its text never becomes shorter.
fn write(file: impl AsFd, value: u64) -> Option<()> {
    let mut text = Text::default();
    writeln!(text, "{value}").ok()?;
    pwrite(file, text.bytes(), 0).ok().map(|_| ())
}

/// Text of a few letters, without memory of its own.
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
}
